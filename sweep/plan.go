package sweep

import (
	"context"
	"fmt"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	tempAge  = 24 * time.Hour // an unreadable temp is litter when it is older
	planTime = time.Minute    // a plan takes no longer
)

// Sweeper plans the removal of abandoned reclaim tokens and temp files below a root. Its fields are not changed
// after first use; its methods may be called at the same time.
type Sweeper struct {
	Root   string         // Required.
	Locker *fslock.Locker // Optional: one that has been watching knows more. nil: a new one.
	Temps  bool           // also plan temps, not only tokens
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
	ctx, cancel := context.WithTimeout(ctx, planTime)
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
	locker := s.Locker
	if locker == nil {
		locker = &fslock.Locker{}
	}
	infos := locker.InspectAll(ctx, nil, found.Tokens, found.Temps)
	for i := range infos.Tokens {
		if t := &infos.Tokens[i]; !t.Facts.Missing {
			plan.Steps = append(plan.Steps, planToken(t))
		}
	}
	table := locker.Table
	if table == nil {
		table = proc.Local()
	}
	for i := range infos.Temps {
		if t := &infos.Temps[i]; !t.Facts.Missing {
			plan.Steps = append(plan.Steps, planTemp(t, table))
		}
	}
	return plan, ctx.Err()
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
func planTemp(t *fslock.TempInfo, table *proc.Table) Step {
	s := Step{Path: t.Path, LockOf: LockOf(t.Path), Temp: t, Why: t.Verdict.Sentence}
	f := t.Facts
	if t.Verdict.State == verdict.Litter {
		s.Remove = true
		return s
	}
	if f.Problem == nil {
		return s
	}
	age := verdict.Age(f.File.ModTime, f.Look)
	switch {
	case f.Problem.Problem != record.Malformed:
		s.Why = "It is no file that can be read: " + f.Problem.Detail + "."
	case f.Proc.Answer == proc.Alive:
	case age <= tempAge:
		s.Why = fmt.Sprintf("Unreadable and written %s ago: it may still be written for a day.", age.Truncate(time.Second))
	default:
		writers, complete := table.Writers(f.File.Dev, f.File.Ino)
		switch {
		case len(writers) > 0:
			s.Why = fmt.Sprintf("Unreadable, but pid %d has it open.", writers[0])
		case !complete:
			s.Why = "Unreadable and over a day old, but whether a process has it open cannot be seen from here."
		default:
			s.Remove = true
			s.Why = "Unreadable, over a day old and open in no process."
		}
	}
	return s
}
