package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
	"holdfast/tui/text"
	"holdfast/watch"
)

// observeEvery is the time between two looks at what is observed: over 2 s nothing would count as watched.
const observeEvery = 500 * time.Millisecond

// sight is what looks at single places. It remembers what it saw, so that looking again and again counts as watching.
type sight struct {
	readOnly bool
	locker   *fslock.Locker
	stores   map[string]*lease.Store   // by directory
	watchers map[string]*watch.Watcher // by the paths of their roots
}

func (a *app) sight() *sight {
	return &sight{
		readOnly: a.readOnly, locker: &fslock.Locker{ReadOnly: a.readOnly},
		stores: map[string]*lease.Store{}, watchers: map[string]*watch.Watcher{},
	}
}

func (s *sight) store(dir string) *lease.Store {
	store := s.stores[dir]
	if store == nil {
		store = &lease.Store{Dir: dir, ReadOnly: s.readOnly}
		s.stores[dir] = store
	}
	return store
}

// all looks once at the roots; the entries have their evidence.
func (s *sight) all(ctx context.Context, roots []watch.Root) (*watch.Snapshot, error) {
	var paths []string
	for _, root := range roots {
		paths = append(paths, root.Path)
	}
	key := strings.Join(paths, "\x00")
	w := s.watchers[key]
	if w == nil {
		w = &watch.Watcher{Roots: roots}
		s.watchers[key] = w
	}
	snap, err := w.Look(ctx)
	if err != nil {
		return nil, failed(err)
	}
	snap.Entries = judgedWhole(snap.Time, snap.Entries)
	return snap, nil
}

// target is one place that a person named, be there anything or not.
type target struct {
	kind watch.Kind
	path string // absolute; of a lease its would-be file
	id   string // leases
	arg  string // how a command names it so that it is found again
	same bool   // path is just what was named, not what that belongs to
}

func (t *target) String() string {
	if t.kind == watch.Lease {
		return "lease " + t.id
	}
	return t.kind.String() + " " + t.path
}

// target finds what PATH|ID names. An ID is looked up as everywhere; a path is a word with a separator in it, with the
// name of a lock, lease, token or temp, or of a file that is there while no lease has that id.
func (a *app) target(ctx context.Context, arg string) (target, error) {
	if arg == "" {
		return target{}, usage("an argument is empty")
	}
	if hasSeparator(arg) || sweep.IsEntry(arg) {
		return a.targetAt(arg)
	}
	place, err := a.lookUp(ctx, arg)
	if err != nil || !place.found {
		if info, serr := os.Lstat(arg); serr == nil && !info.IsDir() {
			return a.targetAt(arg)
		}
	}
	if err != nil {
		return target{}, err
	}
	return target{kind: watch.Lease, path: filepath.Join(place.dir, place.id+".lease.json"), id: place.id, arg: place.id, same: true}, nil
}

func (a *app) targetAt(arg string) (target, error) {
	path, err := absolute(arg)
	if err != nil {
		return target{}, failed(err)
	}
	t := target{kind: watch.Lock, path: path, arg: path, same: true}
	dir, name := filepath.Split(path)
	if id, isLease := sweep.LeaseOf(path); isLease {
		t.kind, t.id, t.path = watch.Lease, id, filepath.Join(dir, id+".lease.json")
		t.arg, t.same = t.path, t.path == path
		return t, nil
	}
	_, token := record.ParseToken(name)
	switch {
	case token: // of a lock of any name
		t.kind = watch.Token
	case sweep.LockOf(path) != "" || strings.HasPrefix(name, ".registry-tmp-"):
		t.kind = watch.Temp
	case !sweep.IsEntry(name) && isDir(path):
		return t, usage("%s is a directory, no lease and no lock", arg)
	}
	return t, nil
}

// verbOn is a command of the verb on the target that works from wherever it is pasted.
func (a *app) verbOn(verb string, t *target, options ...string) string {
	if t.arg == t.id {
		return a.onID(verb, t.id, options...)
	}
	return verdict.Command(verb, t.arg, options...)
}

// sighting is one look at a target: exactly one of lease, lock and token is set.
type sighting struct {
	watch.Entry
	lease *lease.Info
	lock  *fslock.Info
	token *fslock.TokenInfo
}

// look looks at a target. The error says that its directory cannot be looked at.
func (s *sight) look(t *target) (*sighting, error) {
	dir, name := filepath.Split(t.path)
	// That it may not be looked at is the verdict on what is in it.
	if _, err := os.Stat(dir); err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, failed(err)
	}
	see := &sighting{Entry: watch.Entry{Kind: t.kind, Root: t.path, Path: t.path}}
	switch t.kind {
	case watch.Lease:
		info, err := s.store(filepath.Clean(dir)).Look(t.id)
		if err != nil {
			return nil, err
		}
		see.lease, see.ID, see.Epoch, see.Raw = &info, t.id, info.Epoch, info.Raw
		see.Subject, see.Verdict = info.Facts, info.Verdict
	case watch.Token:
		info := s.locker.InspectToken(t.path)
		lock, _ := record.ParseToken(name)
		see.token, see.LockOf, see.Raw = &info, dir+lock, info.Raw
		see.Subject, see.Verdict = info.Facts, info.Verdict
	default:
		see.Kind = watch.Lock
		info := s.locker.Inspect(t.path)
		see.lock, see.Token, see.Raw = &info, info.Token, info.Raw
		see.Subject, see.Verdict = info.Facts, info.Verdict
	}
	return see, nil
}

// missing reports whether nothing is there.
func (s *sighting) missing() bool { return s.Seen().Missing }

// unreadable reports whether what is there cannot be read.
func (s *sighting) unreadable() bool { return s.Seen().Problem != nil }

// changed reports whether two looks at the same place saw different files.
func changed(was, is *watch.Entry) bool {
	a, b := was.Seen(), is.Seen()
	if a == nil || b == nil {
		return false
	}
	return a.Missing != b.Missing || a.File != b.File || !bytes.Equal(was.Raw, is.Raw)
}

// allChanged reports whether nothing of what was seen is there as it was: there is nothing left to watch.
func allChanged(was, are []*watch.Entry) bool {
	for _, old := range was {
		for _, e := range are {
			if e.Kind == old.Kind && e.Path == old.Path && !changed(old, e) {
				return false
			}
		}
	}
	return true
}

// observe calls look again and again, until it is done or fails or d is over; the last time when it is.
func (a *app) observe(ctx context.Context, d time.Duration, look func() (done bool, err error)) error {
	a.tellObserving(d)
	end := time.NewTimer(d)
	defer end.Stop()
	next := time.NewTicker(observeEvery)
	defer next.Stop()
	for {
		last := false
		select {
		case <-ctx.Done():
			return endedBy(ctx)
		case <-end.C:
			last = true
		case <-next.C:
		}
		if done, err := look(); done || err != nil || last {
			return err
		}
	}
}

func (a *app) tellObserving(d time.Duration) {
	fmt.Fprintf(a.Stderr, "holdfast: watching for %s, or until it changes\n", text.Long(d))
}

const observeUsage = "watch it that long before judging it: a stamp in the future, or another machine's holder, is told by that"

// nameOf is what a person knows the path by, if it lies in one of the roots.
func nameOf(roots []watch.Root, path string) string {
	for _, root := range roots {
		if !strings.HasPrefix(path, root.Path+string(filepath.Separator)) {
			continue
		}
		if layout, err := sweep.Recognise(root.Path); err == nil {
			if name := (&sweep.Names{Layout: layout}).Of(path).Short; name != "" {
				return name
			}
		}
	}
	return ""
}
