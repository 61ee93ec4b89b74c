// Package fslock looks at AFT's heartbeat locks, the reclaim tokens beside them and the temp files that both leave.
//
// What looking promises:
//
//  1. It writes nothing, takes no lock and sends no signal but 0: it works on a read-only tree and without rights
//     over the holder.
//  2. It follows no link in the place of a lock, token or temp and opens nothing but a regular file of at most
//     64 KiB for reading; whatever else is there is told as unreadable, at once.
//  3. It waits for nobody: a file that is no record, or is being rewritten, is looked at four times at most, a
//     millisecond apart.
//  4. Doubt never makes a holder dead. What cannot be read, proven or reached is told as that, with its reason; only
//     a name that does not exist is free.
//  5. Looking at many gives for each what looking at it alone gives.
//
// What it cannot see: who waits for a lock without having announced itself by a temp; whether a process of another
// machine or of a hidden pid namespace lives; that a file was changed and changed back between two looks; a lock
// that comes and goes between two looks. What is told is true of the moment of the look, not of the next one: a
// contender decides for itself.
package fslock

import (
	"log/slog"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Locker looks at locks. The zero value is ready; its fields are not changed after first use, and its methods may be
// called at the same time. It remembers what it last saw at each path and since when that has not changed, so that
// one Locker used for long sees more than many: a stamp in the future, or a dead machine's clock, is then told by
// watching.
type Locker struct {
	Log   *slog.Logger // nil: discards
	Table *proc.Table  // how processes are looked at; nil: this machine

	memory    record.Memory
	sinceBoot func() time.Duration // nil: proc.SinceBoot
}

// Info is one lock as it was looked at.
type Info struct {
	Path    string
	Facts   *verdict.LockFacts
	Verdict verdict.Verdict // Facts judged at Facts.Look
	Token   *verdict.Token  // the token beside it; nil: none
	Raw     []byte          // the file's bytes; nil when not read
}

// TokenInfo is one reclaim token as it was looked at.
type TokenInfo struct {
	Path    string
	Facts   *verdict.TokenFacts
	Token   verdict.Token
	Verdict verdict.Verdict // Facts judged at Facts.Look
	Raw     []byte
}

// TempInfo is one temp file as it was looked at.
type TempInfo struct {
	Path    string
	Facts   *verdict.TempFacts
	Verdict verdict.Verdict // Facts judged at Facts.Look
	Raw     []byte
}

// Inspect looks at the lock at path and the token beside it. It never fails: a missing lock is free, one that
// cannot be looked at is unreadable and says why.
func (l *Locker) Inspect(path string) Info { return l.look(l.table()).lock(path) }

// InspectToken looks at the reclaim token at path itself. Facts.Missing tells one that is not there.
func (l *Locker) InspectToken(path string) TokenInfo { return l.look(l.table()).token(path) }

// InspectTemp looks at the temp file at path, a lock's or a lease's. Facts.Missing tells one that is not there.
func (l *Locker) InspectTemp(path string) TempInfo { return l.look(l.table()).temp(path) }

func (l *Locker) table() *proc.Table {
	if l.Table != nil {
		return l.Table
	}
	return proc.Local()
}

func (l *Locker) bootClock() time.Duration {
	if l.sinceBoot != nil {
		return l.sinceBoot()
	}
	return proc.SinceBoot()
}
