// Package verdict is the one vocabulary of holdfast: what is so (State, Cause), why (Evidence), what follows
// (Claimable, Flags, Next), and what each original would do now.
//
// Facts are gathered by packages lease and fslock; Judge is pure. So the same facts can be judged again as
// time passes, and what the screen says is what the next claim does.
package verdict

import (
	"strings"
	"time"

	"holdfast/fslock/proc"
)

// State is what is so. The zero value is Unknown.
type State uint8

// States of leases and locks (Unknown to Free), of tokens (Alive, Dead, Unknown, Malformed) and of temps
// (InUse, Litter).
const (
	Unknown State = iota
	Unreadable
	Dead
	Expired
	Stopped
	Late
	Remote
	Live
	Free
	Alive
	Malformed
	InUse
	Litter
)

var stateNames = [...]string{
	"unknown", "unreadable", "dead", "expired", "stopped", "late", "remote", "live", "free",
	"alive", "malformed", "in-use", "litter",
}

func (s State) String() string { return stateNames[s] }

// When says when the next claimant can have it. The zero value is Blocked.
type When uint8

// The answers.
const (
	Blocked When = iota // a person, or somebody named in By, must act first
	Event               // when the holder releases or dies
	At                  // at Claimable.At at the earliest, if nothing is renewed till then
	Now
)

func (w When) String() string { return [...]string{"blocked", "event", "at", "now"}[w] }

// Claimable is when the next claimant can have it.
type Claimable struct {
	When When
	At   time.Time // for At; for Blocked by something that clears by itself, when that is
	By   string    // for Blocked: by what, one phrase
}

// Flag is a remark beside the state.
type Flag uint16

// The flags.
const (
	Mine        Flag = 1 << iota // held by this very process
	IsBlocked                    // exactly when Claimable.When is Blocked
	Clock                        // a stamp that cannot be right
	LongHeld                     // a lock held over 10 minutes by a live, late or stopped holder
	Legacy                       // alive by pid alone
	EpochFlag                    // the epoch counter is damaged or behind
	StoppedFlag                  // an expired one whose holder is stopped
)

var flagNames = [...]string{"mine", "blocked", "clock", "long-held", "legacy", "epoch", "stopped"}

// Strings returns the names of the flags that are set, in a fixed order; never nil.
func (f Flag) Strings() []string {
	names := make([]string, 0, len(flagNames))
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Has reports whether all of the flags are set.
func (f Flag) Has(flags Flag) bool { return f&flags == flags }

// Original is what one of the two original programs would do at this moment, by its own rules.
type Original struct {
	System string // "AgentMux", "AFT"
	Does   string // "takes it", "refuses", "waits", "removes it as malformed", "hangs", ...
	Why    string
}

// Verdict is what is known about one entry at one moment.
type Verdict struct {
	State     State
	Cause     string // "" or one of proc's causes and record's problems
	Sentence  string // one sentence for a person
	Evidence  []proc.Check
	Claimable Claimable
	Flags     Flag
	Stuck     bool     // it does not clear by itself: blocked, or a stopped lock
	Next      []string // next safe commands, best first
	Originals []Original
	Changes   time.Time // the first moment at which time alone has changed this verdict; zero: never
}

// Holder is who a record names, as it is told to people and programs. Zero values are unknown.
type Holder struct {
	PID         uint32
	Host        string
	OwnerBootID string // leases, likewise the next six
	BlockID     string
	SessionID   *string
	Channel     string
	Version     string
	Epoch       uint64
	ClaimID     string
	WriterEpoch string    // locks and tokens
	Acquired    time.Time // locks: created
	Renewed     time.Time // locks: last heartbeat
}

// Token is what is known about a reclaim token.
type Token struct {
	Path    string
	State   State // Alive, Dead, Unknown or Malformed
	PID     uint32
	Host    string
	Created time.Time // zero: unknown
	Clears  time.Time // when it stops blocking by itself; zero: unknown, or at the next attempt
}

// ExitCode is what `why` exits with: 7, 8, 5, 4, 3 or 0.
func (v Verdict) ExitCode() int {
	switch v.State {
	case Unreadable, Malformed:
		return 7
	case Dead, Expired:
		if v.Flags.Has(IsBlocked) { // Claimable says nothing of a token
			return 8
		}
		return 4
	case Free:
		if v.Flags.Has(IsBlocked) {
			return 8
		}
		return 0
	case Stopped, Late, Remote, Live, Alive:
		return 3
	case InUse, Litter:
		return 0
	default:
		return 5
	}
}

// Worse returns the worse of two exit codes for several entries: 7, 8, 5, 4, 3, 0 in that order.
func Worse(a, b int) int {
	const order = "034587"
	if strings.IndexByte(order, byte('0'+a)) < strings.IndexByte(order, byte('0'+b)) {
		return b
	}
	return a
}

// Subject is what was gathered about one entry: enough to judge it at any moment near the look.
type Subject interface {
	Judge(now time.Time) Verdict
	// Holder returns nil when no record could be read.
	Holder() *Holder
}
