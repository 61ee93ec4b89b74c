package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// The questions that a caller asks of an error.
var (
	ErrBadID       = errors.New("not a lease id")
	ErrHeld        = errors.New("lease is held")
	ErrLost        = errors.New("lease is lost")
	ErrBusy        = errors.New("critical section is busy")
	ErrEpoch       = errors.New("epoch counter cannot be trusted")
	ErrUnreadable  = errors.New("lease cannot be read")
	ErrReadOnly    = errors.New("read-only")
	ErrHolderAlive = errors.New("lease belongs to a process that is not proven dead")
)

// IDError is an id that names no lease. It matches ErrBadID.
type IDError struct {
	Op, ID, Reason string
}

func (e *IDError) Error() string {
	return fmt.Sprintf("%s lease %q: not a lease id: %s; ids are 1 to 200 bytes without separators", e.Op, e.ID, e.Reason)
}

func (e *IDError) Unwrap() error { return ErrBadID }

// ConflictError says what stands against a call: who holds the lease, since when and until when. It matches
// ErrHeld, ErrLost, ErrUnreadable, ErrHolderAlive, ErrChanged or ErrNotYet.
type ConflictError struct {
	Op, ID, Path string
	Holder       *verdict.Holder // nil: nothing could be read
	Verdict      verdict.Verdict
	SameOwner    bool   // held by the claimant's own owner, for another block or by another process
	Reason       string // more than Err says, one phrase; ""
	Err          error

	held time.Duration // by Holder, when it was looked at
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s lease %s (%s): %v", e.Op, e.ID, e.Path, e.Err)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if h := e.Holder; h != nil {
		link := ", which names"
		switch {
		case errors.Is(e.Err, ErrHeld):
			link = " by"
		case errors.Is(e.Err, ErrLost):
			link = " to"
		case errors.Is(e.Err, ErrChanged):
			link = "; it now names"
		}
		s += fmt.Sprintf("%s pid %d on %s, channel %s, version %s, block %s, for %v", link, h.PID, orUnknown(h.Host),
			orUnknown(h.Channel), orUnknown(h.Version), orUnknown(h.BlockID), e.held.Truncate(time.Second))
	}
	if e.SameOwner {
		s += ", the same AgentMux process or owner"
	}
	if e.Verdict.Sentence != "" {
		s += ": " + e.Verdict.Sentence
	}
	return s + " See `holdfast why " + e.ID + "`."
}

func (e *ConflictError) Unwrap() error { return e.Err }

// BusyError says who sits in the critical section. It matches ErrBusy and what ended the wait.
type BusyError struct {
	Op, ID, Path string
	Waited       time.Duration
	Holders      []proc.FlockHolder // who could be seen
	Complete     bool               // all processes could be seen
	Err          error              // context.DeadlineExceeded or Canceled
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("%s lease %s: critical section %s is busy for %v", e.Op, e.ID, e.Path, e.Waited.Round(10*time.Millisecond))
	var who []string
	var stopped int
	for _, h := range e.Holders {
		if h.Waiting {
			continue
		}
		w := fmt.Sprintf("pid %d (%s)", h.PID, h.Name)
		if h.Stopped {
			w += ", which is stopped"
			stopped = h.PID
		}
		who = append(who, w)
	}
	switch {
	case len(who) > 0:
		s += ": inside is " + strings.Join(who, ", ")
	case e.Complete:
		s += ": whoever was inside has left"
	default:
		s += ": who is inside cannot be seen from here"
	}
	if stopped != 0 {
		s += fmt.Sprintf("; `kill -CONT %d` lets it go on", stopped)
	}
	return s
}

func (e *BusyError) Unwrap() []error { return []error{ErrBusy, e.Err} }

// EpochError says why no next epoch can be given out. It matches ErrEpoch.
type EpochError struct {
	Op, ID, Path string // of the counter
	Reason       string
	Err          error
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("%s lease %s: %s: %s; `holdfast epoch %s` shows and repairs it", e.Op, e.ID, e.Path, e.Reason, e.ID)
}

func (e *EpochError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrEpoch}
	}
	return []error{ErrEpoch, e.Err}
}

// IOError is a call that the system refused.
type IOError struct {
	Op, ID, Path string
	Err          error
}

func (e *IOError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("%s leases in %s: %v", e.Op, e.Path, e.Err)
	}
	return fmt.Sprintf("%s lease %s: %v", e.Op, e.ID, e.Err)
}

func (e *IOError) Unwrap() error { return e.Err }

// refusedReadOnly is what every changing call of a read-only store returns.
func refusedReadOnly(op, id string) error { return &IOError{Op: op, ID: id, Err: ErrReadOnly} }

func conflict(op string, f *verdict.LeaseFacts, v verdict.Verdict, err error) *ConflictError {
	e := &ConflictError{Op: op, ID: f.ID, Path: f.Path, Holder: f.Holder(), Verdict: v, Err: err}
	if e.Holder != nil {
		e.held = verdict.Age(e.Holder.Acquired, f.Look)
	}
	return e
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
