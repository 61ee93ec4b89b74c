package sweep

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	tempAge = 24 * time.Hour // an unreadable temp is litter when it is older
	maxTime = time.Minute    // a plan takes no longer, and neither does a run
)

// Sweeper removes abandoned reclaim tokens and temp files below a root: it plans, and runs what was planned. Its
// fields are not changed after first use; its methods may be called at the same time, and several sweepers, in several
// processes, too, may be at work on the same root: each file is removed by one of them.
type Sweeper struct {
	Root   string         // Required.
	Locker *fslock.Locker // Optional: one that has been watching knows more, and has the log. nil: a new one.
	Temps  bool           // also plan temps, not only tokens
	Audit  *audit.Log     // what a run removes is told there first; nil: the user's own
	Reason string         // for the audit log; "": "sweep"

	fileSystem func(dir string) (name string, local bool) // nil: record.FileSystem
}

// Step is what a run would do with one token or temp, bound to what was looked at. Exactly one of Token and Temp is
// set.
type Step struct {
	Path   string
	LockOf string // the path of the lock that it belongs to; "" for a lease's temp
	Remove bool
	Why    string // one phrase
	Token  *fslock.TokenInfo
	Temp   *fslock.TempInfo
}

// Plan is what a run would do. It is true of the moment of its looks: a run judges everything again.
type Plan struct {
	Layout Layout
	Steps  []Step // tokens, then temps, each by path
	Errors []PlaceError
}

// Plan looks for tokens and, if asked, temps, and tells what a run would do with each and why. It removes nothing. A
// place that cannot be looked at is one of Plan.Errors; a missing root is an empty plan. The error, beside which the
// plan holds what was found so far, is a *PlaceError when the root itself cannot be looked at, or the context's. A
// plan takes a minute at most.
func (s *Sweeper) Plan(ctx context.Context) (Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	layout, err := Recognise(s.Root)
	plan := Plan{Layout: layout}
	if err != nil {
		return plan, err
	}
	found := layout.Find(ctx)
	plan.Errors = found.Errors
	if !s.Temps {
		found.Temps = nil
	}
	infos := s.locker().InspectAll(ctx, nil, found.Tokens, found.Temps)
	for i := range infos.Tokens {
		if t := &infos.Tokens[i]; !t.Facts.Missing {
			plan.Steps = append(plan.Steps, planToken(t))
		}
	}
	// Who has which file open is asked once for all: each answer costs a look at every descriptor there is.
	table := s.table().Batch()
	for i := range infos.Temps {
		if t := &infos.Temps[i]; !t.Facts.Missing {
			plan.Steps = append(plan.Steps, s.planTemp(t, table))
		}
	}
	return plan, ctx.Err()
}

func (s *Sweeper) locker() *fslock.Locker {
	if s.Locker != nil {
		return s.Locker
	}
	return &fslock.Locker{}
}

func (s *Sweeper) table() *proc.Table {
	if s.Locker != nil && s.Locker.Table != nil {
		return s.Locker.Table
	}
	return proc.Local()
}

// planToken: only a maker that is proven dead, or a malformed token after its time, makes a token litter.
func planToken(t *fslock.TokenInfo) Step {
	s := Step{Path: t.Path, LockOf: LockOf(t.Path), Token: t, Why: t.Verdict.Sentence}
	switch t.Token.State {
	case verdict.Dead, verdict.Malformed:
		s.Remove = !t.Facts.Blocks(t.Facts.Look)
	default:
	}
	return s
}

// planTemp: a temp is litter when its process is proven dead, or when it cannot be read, is over a day old and no
// process has it open.
func (s *Sweeper) planTemp(t *fslock.TempInfo, table *proc.Table) Step {
	step := Step{Path: t.Path, LockOf: LockOf(t.Path), Temp: t, Why: t.Verdict.Sentence}
	f := t.Facts
	age := verdict.Age(f.File.ModTime, f.Look)
	switch {
	case f.Problem != nil && f.Problem.Problem != record.Malformed:
		// Whatever its name says: what was not read is bound to nothing, and can be a link, or a whole directory.
		step.Why = "It is no file that can be read: " + f.Problem.Detail + "."
	case !isTempName(filepath.Base(t.Path)):
		step.Why = "Its name is none that the temp of a lock or lease has: it may be somebody else's."
	case t.Verdict.State == verdict.Litter:
		step.Remove = true
	case f.Problem == nil, f.Proc.Answer == proc.Alive:
	case age <= tempAge:
		step.Why = fmt.Sprintf("Unreadable and written %s ago: it may still be written for a day.", age.Truncate(time.Second))
	default:
		writers, complete := table.Writers(f.File.Dev, f.File.Ino)
		switch {
		case len(writers) > 0:
			step.Why = fmt.Sprintf("Unreadable, but pid %d has it open.", writers[0])
		case !complete:
			step.Why = "Unreadable and over a day old, but whether a process has it open cannot be seen from here."
		case !s.isLocal(filepath.Dir(t.Path)):
			step.Why = "Unreadable and over a day old, but a process of another machine may have it open."
		default:
			step.Remove = true
			step.Why = "Unreadable, over a day old and open in no process."
		}
	}
	return step
}

// isTempName reports whether it is the whole name of a temp. That a file shows as one takes less: an editor's
// backup ".Cargo.lock.tmp.old" does.
func isTempName(name string) bool {
	lock, ok := tempOf(name)
	_, _, numbered := record.ParseTemp(name)
	return ok && (lock == "" || numbered)
}

// isLocal reports whether no other machine has a share of the directory's file system.
func (s *Sweeper) isLocal(dir string) bool {
	fileSystem := s.fileSystem
	if fileSystem == nil {
		fileSystem = record.FileSystem
	}
	_, local := fileSystem(dir)
	return local
}
