// Package lease takes, keeps and gives up AgentMux leases: files that say which live process may drive an agent.
//
// What it promises, to processes that follow the same rules on one machine:
//
//  1. At most one claimant is granted a lease at a time. Read, decide and write happen in the id's critical
//     section, an flock on <id>.lock that is never removed.
//  2. A holder that is not proven dead keeps its lease for the TTL after its last renewal.
//  3. Epochs only grow. The counter is durable before a claim is granted, and a counter that is damaged or lost
//     is an error, never a fresh start.
//  4. A handle never writes or removes another claim's lease: claim ids are compared in the critical section.
//  5. Every call ends: with its context, or after 5 s where that has no deadline (Release: 2 s).
//  6. Looking (Inspect, List, LiveHolder, Verify) writes nothing, takes no lock, follows no link, waits for nothing.
//     Observe looks so for as long as it is told.
//  7. Break removes only the claim that was looked at, compared in the critical section and again directly before
//     the removal, never what is no regular file, and only after the audit log has its bytes on the disk. Without
//     force it takes nothing that a claimant would not be granted. The next owner's epoch is larger all the same.
//  8. Restore puts those bytes back only where no lease is and no epoch was given out since.
//
// What it cannot promise: that a holder stops working when its lease runs out (a turn may still be going on:
// compare epochs where it counts), or when it is broken; exclusion on file systems whose flock is not shared by all
// machines that use them, and anything against a program that deletes the files.
package lease

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Store is a directory of leases. Its fields are not changed after first use; its methods may be called at the
// same time. It remembers what it last saw of each lease, so that one store used for long sees more than many.
type Store struct {
	Dir      string        // the directory of the lease files. Required.
	TTL      time.Duration // how long a lease lives without renewal; 0: 15 s
	Interval time.Duration // how often Keep renews; 0, or more than half the TTL: a third of it
	Log      *slog.Logger  // nil: discards
	ReadOnly bool          // Claim, Renew, Keep, Release, SetEpoch, Break and Restore are refused with ErrReadOnly
	Table    *proc.Table   // how processes are looked at; nil: this machine

	// Looked is raised by one for every lease that List has looked at, while it runs. nil: nobody counts.
	Looked *atomic.Int64

	memory    record.Memory
	sinceBoot func() time.Duration    // nil: proc.SinceBoot
	fault     func(step string) error // called between two steps of a change; nil: nothing
}

// Claimant is what a claim records about itself.
type Claimant struct {
	// Owner (owner_boot_id) and Block together say whose lease it is: the same two claim it again. An empty one
	// is replaced by a fresh unique one.
	Owner, Block string
	Session      string // empty: null
	Channel      string // empty: told as unknown, like Version
	Version      string
}

// Info is one lease as it was looked at.
type Info struct {
	ID      string
	Path    string // of the lease file, whether or not it is there
	Facts   *verdict.LeaseFacts
	Verdict verdict.Verdict // Facts judged at Facts.Look
	Epoch   uint64          // of the record, or else of the counter; 0: unknown
	Raw     []byte          // the file's bytes; nil when not read
}

const (
	leaseSuffix   = ".lease.json"
	counterSuffix = ".epoch"
	sectionSuffix = ".lock"
)

// The parts of a lease's life, in intervals of renewal (15, 11 and 10 s, and 1 s to retry, where that is 5 s).
func (s *Store) interval() time.Duration {
	if s.Interval > 0 && s.Interval <= s.ttl()/2 {
		return s.Interval
	}
	return s.ttl() / (verdict.LeaseTTL / verdict.LeaseInterval)
}

func (s *Store) ttl() time.Duration {
	if s.TTL > 0 {
		return s.TTL
	}
	return verdict.LeaseTTL
}

func (s *Store) table() *proc.Table {
	if s.Table != nil {
		return s.Table
	}
	return proc.Local()
}

func (s *Store) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (s *Store) bootClock() time.Duration {
	if s.sinceBoot != nil {
		return s.sinceBoot()
	}
	return proc.SinceBoot()
}

// at is the seam at which tests delay or fail a change between two of its steps.
func (s *Store) at(step string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(step)
}

func (s *Store) path(id, suffix string) string { return filepath.Join(s.Dir, id+suffix) }

// Inspect looks at one lease. A lease that is missing, damaged or held is an Info, not an error; errors match
// ErrBadID, or come from looking at the directory itself.
func (s *Store) Inspect(id string) (Info, error) {
	if err := checkID("inspect", id); err != nil {
		return Info{}, err
	}
	if _, err := os.Stat(s.Dir); err != nil {
		return Info{}, &IOError{Op: "inspect", ID: id, Path: s.Dir, Err: err}
	}
	return s.inspect(id), nil
}

// Look is Inspect for the name of a lease file that somebody wrote, also one for whose id no claim is granted here. The
// name must be a single one: it errs as Inspect does when it has a separator.
func (s *Store) Look(id string) (Info, error) {
	if id == "" || filepath.Base(id) != id {
		return Info{}, checkID("inspect", id)
	}
	return s.inspect(id), nil
}

func (s *Store) inspect(id string) Info {
	info := s.look(s.table()).inspect(id, nil)
	info.Verdict = info.Facts.Judge(info.Facts.Look)
	return info
}

// inspect leaves the verdict to the caller.
func (k *looking) inspect(id string, known *verdict.LeaseFacts) Info {
	facts, raw := k.gather(id, known)
	k.lookInside(facts)
	info := Info{ID: id, Path: facts.Path, Facts: facts, Raw: raw, Epoch: facts.Counter.Value}
	if facts.Record != nil && facts.Record.Epoch > 0 {
		info.Epoch = facts.Record.Epoch
	}
	return info
}

// List looks at every id of which a lease, a counter or a flock file is there, sorted by id, as InspectAll does. One bad
// entry is one Info with its own reason. A missing directory is an empty list; other errors come from reading the
// directory.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	ids, err := s.IDs()
	if err != nil {
		return nil, err
	}
	return s.InspectAll(ctx, ids)
}

// InspectAll looks at many leases as InspectEach does, sections included, and returns them in the order of the ids.
func (s *Store) InspectAll(ctx context.Context, ids []string) ([]Info, error) {
	infos := make([]Info, len(ids))
	if err := s.InspectEach(ctx, ids, Each{Sections: true, Tell: func(i int, info Info) { infos[i] = info }}); err != nil {
		return nil, err
	}
	return infos, nil
}

// Each says what InspectEach looks at beside the leases, and takes what it finds. Several goroutines call its functions at
// the same time.
type Each struct {
	Tell func(i int, info Info) // of the i-th id
	// Sections: look, too, who is in the critical sections, which Facts.Inside does not tell otherwise: the kernel takes
	// some 10 ms to list its locks when it has not been asked for a while, of one lease as of many.
	Sections bool
	// Known returns what an earlier look found of the i-th id, or nil: a counter that is unchanged by its times and numbers
	// is not read again. Only for a file system to which no other machine writes. nil: nothing is known.
	Known func(i int) *verdict.LeaseFacts
}

// InspectEach looks at many leases: it tells of each what Look gives, with one look at the process table for all. The
// verdicts are without Evidence, Originals and Next, which Judge of the Facts tells. Each id must be a single name of a
// file. The error is the context's; not all were told then.
func (s *Store) InspectEach(ctx context.Context, ids []string, each Each) error {
	k := s.look(s.table().Batch())
	k.apart = !each.Sections
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range min((len(ids)+15)/16, max(4, runtime.GOMAXPROCS(0))) { // to wake one costs as much as some looks
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				var known *verdict.LeaseFacts
				if each.Known != nil {
					known = each.Known(i)
				}
				info := k.inspect(ids[i], known)
				info.Verdict = info.Facts.Glance(info.Facts.Look)
				each.Tell(i, info)
				done.Add(1)
				if s.Looked != nil {
					s.Looked.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if int(done.Load()) < len(ids) {
		return ctx.Err()
	}
	return nil
}

// IDs returns every id of which a lease, a counter or a flock file is there, sorted, also those for which no claim is
// granted. A missing directory has none; other errors come from reading it.
func (s *Store) IDs() ([]string, error) {
	names, err := names(s.Dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, &IOError{Op: "list", Path: s.Dir, Err: err}
	}
	var ids []string
	known := make(map[string]bool, len(names)/3)
	for _, suffix := range [...]string{leaseSuffix, counterSuffix, sectionSuffix} {
		for _, name := range names {
			if id, ok := strings.CutSuffix(name, suffix); ok && id != "" && id[0] != '.' && !known[id] {
				known[id] = true
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// names returns what is in a directory, in no order.
func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// LiveHolder returns who holds the lease if that is somebody else than ownOwner, unexpired and not proven dead;
// nil otherwise. A malformed lease that is still honoured is held by a holder of which nothing is known; what is
// no lease at all is an error that matches ErrUnreadable. The binding decision is Claim's.
func (s *Store) LiveHolder(id, ownOwner string) (*verdict.Holder, error) {
	if err := checkID("look up", id); err != nil {
		return nil, err
	}
	facts, _ := s.gather(s.table(), id)
	v := facts.Judge(facts.Look)
	switch v.State {
	case verdict.Free, verdict.Dead, verdict.Expired:
		return nil, nil
	case verdict.Unreadable:
		switch {
		case facts.Problem.Problem != record.Malformed:
			return nil, conflict("look up", facts, v, ErrUnreadable)
		case facts.Look.After(facts.Expires()):
			return nil, nil
		default:
			return &verdict.Holder{}, nil
		}
	default:
		if facts.Record.OwnerBootID == ownOwner {
			return nil, nil
		}
		return facts.Holder(), nil
	}
}
