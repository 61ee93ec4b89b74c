package fslock

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
	ErrHeld       = errors.New("lock is held")
	ErrLost       = errors.New("lock is lost")
	ErrStale      = errors.New("no good heartbeat for 70 s") // and for no longer than that is it sure to be its holder's
	ErrBlocked    = errors.New("removal is blocked")         // by a token, or by whoever has the guard
	ErrChanged    = errors.New("not what was looked at any more")
	ErrUnreadable = errors.New("cannot be read") // and a person must act
	ErrNotYet     = errors.New("not taken by any contender, so it wants force and a reason")
	ErrNoReason   = errors.New("a reason is wanted")
	ErrAudit      = errors.New("audit log cannot be kept") // so nothing was changed
	ErrReadOnly   = errors.New("read-only")
)

// The messages of warnings about what a caller can tell a person himself: from the error of the wait, or of Release.
const (
	MsgLate          = "lock is held by a live process without heartbeat; it is not taken over"
	MsgLongHeld      = "lock is held for over 10 minutes by a live process; it is not taken over"
	MsgBlocked       = "lock is blocked by a reclaim token"
	MsgReleaseFailed = "release failed"
)

// ConflictError says what stands against a call: who holds the lock, or which token blocks its removal. It matches
// Err, which is ErrHeld, ErrLost, ErrStale, ErrBlocked, ErrChanged, ErrUnreadable or ErrNotYet; of a wait that ended
// with its context also the context's error.
type ConflictError struct {
	Op, Path string
	Holder   *verdict.Holder // nil: nothing could be read, or nobody holds it
	Token    *verdict.Token  // the token that blocks; nil: none
	Verdict  verdict.Verdict
	Left     time.Duration // for how much longer it must be watched unchanged before it is taken; 0: that is not the reason
	Err      error
	Ended    error // what ended the wait; nil: there was none
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err)
	if e.Ended != nil {
		s = fmt.Sprintf("%s %s: %v: %v", e.Op, e.Path, e.Ended, e.Err)
	}
	if e.Verdict.Sentence != "" {
		s += ": " + e.Verdict.Sentence
	}
	if e.Left > 0 {
		s += fmt.Sprintf(" It must be watched unchanged for %v more.", e.Left.Round(100*time.Millisecond))
	}
	return s
}

func (e *ConflictError) Unwrap() []error {
	if e.Ended == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Ended}
}

// BusyError says who has the guard under which locks are removed. It matches ErrBlocked.
type BusyError struct {
	Op, Path string // Path of the guard
	Waited   time.Duration
	Holders  []proc.FlockHolder // who could be seen
	Complete bool               // all processes could be seen
}

func (e *BusyError) Error() string {
	s := fmt.Sprintf("%s: guard %s is busy for %v", e.Op, e.Path, e.Waited.Round(10*time.Millisecond))
	var who []string
	for _, h := range e.Holders {
		if h.Waiting {
			continue
		}
		w := fmt.Sprintf("pid %d (%s)", h.PID, h.Name)
		if h.Stopped {
			w += fmt.Sprintf(", which is stopped; `kill -CONT %d` lets it go on", h.PID)
		}
		who = append(who, w)
	}
	switch {
	case len(who) > 0:
		return s + ": " + strings.Join(who, ", ")
	case e.Complete:
		return s + ": whoever had it has left"
	default:
		return s + ": who has it cannot be seen from here"
	}
}

func (e *BusyError) Unwrap() error { return ErrBlocked }

// IOError is a call that the system refused, or that is refused before any: ErrReadOnly, ErrNoReason, ErrAudit.
type IOError struct {
	Op, Path string // Op is ours: "acquire", "beat", "verify", "release", "break", "remove", "restore"; Path of the file
	Err      error  // names the system's call
}

func (e *IOError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

func (e *IOError) Unwrap() error { return e.Err }
