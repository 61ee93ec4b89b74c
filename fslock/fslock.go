// Package fslock takes, keeps, loses and breaks AFT's heartbeat locks, and looks at them, at the reclaim tokens beside
// them and at the temp files that both leave. It works beside the original on the same files.
//
// What holding promises, to contenders that follow the same rules on the same file:
//
//  1. At most one of them holds a lock at a time: from the return of Acquire to that of Release, or to the closing of
//     Lost, whichever is first.
//  2. A holder that is proven to run on this machine keeps its lock, however long it is stopped, slow or silent. One
//     that is proven dead loses it to the next contender, at once. One of which neither is known loses it
//     after 75 s without heartbeat, by its stamp and by the file's time, of which the contender has watched 16 s.
//  3. A lock appears whole, under its name, by one system call; its heartbeat runs before that, or there is no lock.
//  4. The heartbeat writes through the descriptor that the lock was made with, so that it can touch no other owner's
//     file. What somebody writes into the lock's own file is healed by the next beat.
//  5. A holder learns of its loss at the next beat, 5 s at most, or by Verify, whichever is first; without a good beat
//     Verify vouches for a lock for 70 s by the boot-time clock, which runs through suspend, and then no more.
//  6. Whoever removes somebody's lock or token has the kernel's guard (an flock of the lock's directory; off local file
//     systems of a file .<name>.guard), which goes with its process, and for a lock the original's token as well. It
//     reads again directly before the removal: a dead holder's lock goes by its identity, everything else only if no
//     byte of it has moved.
//  7. Of what cannot be read, only what is empty, all NUL or the beginning of a record is ever taken over, unchanged
//     for 15 s and open for writing, or flocked, in no process that can be seen. A person may order more by Break,
//     with a reason, and the audit log is written first.
//  8. Every call ends: Acquire with its context, on every path; TryAcquire at once; Release within 3 s, whoever has the
//     guard. A system that does not answer a call keeps the caller.
//  9. What can never succeed fails at once, with path and call: no directory, no permission, a read-only or full disk,
//     something that is no file in the lock's place.
//  10. Nobody starves: whoever comes to a free lock stays back one poll for those that wait, and all of this package
//     every other time for originals that were seen polling.
//
// What looking promises:
//
//  11. It writes nothing, takes no lock and sends no signal but 0: it works on a read-only tree and without rights
//     over the holder.
//  12. It follows no link in the place of a lock, token or temp and opens nothing but a regular file of at most
//     64 KiB for reading; whatever else is there is told as unreadable, at once.
//  13. It waits for nobody: a file that is no record, or is being rewritten, is looked at four times at most, a
//     millisecond apart.
//  14. Doubt never makes a holder dead. What cannot be read, proven or reached is told as that, with its reason; only
//     a name that does not exist is free.
//  15. Looking at many gives for each what looking at it alone gives.
//
// What none of this can promise, because the original on the other side, or the file system, does not give it:
//
//   - An older AFT renames its heartbeat over the name. After a silence in which its lock was taken over (it is stopped
//     on another machine for 75 s, say), that takes the lock back; its former owner learns it by the next beat.
//   - AFT removes what does not parse after a tenth of a second, without a token: also a record that another program is
//     still writing.
//   - AFT takes a malformed token away after 60 s: an AFT that stops for that long while it makes one, or while it
//     reclaims, can remove a lock that somebody else has acquired since.
//   - Whoever deletes the file ends the lock: its holder learns it by the next beat.
//   - An original in another pid namespace under our host name judges our pids by its own.
//   - A directory that is local to one machine and comes to another over a network (an NFS server's own, one that a
//     host shares with its guests): the two take different guards, and have only the token in common.
//   - An original that was silent and taken over compares and then removes, by name, when it releases.
//   - A beat, or a stop and an unguarded release, in the microseconds between the last compare and the removal.
//   - A wall clock that is set forward by more than a minute between two beats of a holder that an original cannot
//     judge.
//   - Grandchildren of a killed `holdfast run`: the kernel kills the command only.
//
// What looking cannot see: who waits for a lock without having announced itself by a temp; whether a process of another
// machine or of a hidden pid namespace lives; that a file was changed and changed back between two looks; a lock
// that comes and goes between two looks. What is told is true of the moment of the look, not of the next one: a
// contender decides for itself.
package fslock

import (
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Locker takes locks and looks at them. The zero value is ready; its fields are not changed after first use, and its
// methods may be called at the same time. It remembers what it last saw at each path and since when that has not
// changed, so that one Locker used for long sees more than many: a stamp in the future, or a dead machine's clock, is
// then told by watching. While somebody waits it has one inotify instance, of which a user has 128: use one Locker a
// process.
type Locker struct {
	Log      *slog.Logger // nil: discards
	ReadOnly bool         // whatever would change a file is refused with ErrReadOnly
	Table    *proc.Table  // how processes are looked at; nil: this machine

	// Looked is raised by one for every path that InspectAll has looked at, while it runs. nil: nobody counts.
	Looked *atomic.Int64

	state     waiting
	memory    record.Memory
	sinceBoot func() time.Duration                   // nil: proc.SinceBoot
	fault     func(step, path string) error          // called between two steps of a change; nil: nothing
	local     func(dir string) (name string, l bool) // nil: record.FileSystem
	link      func(old, name string) error           // nil: os.Link, likewise the next
	rename    func(old, name string) error
	unwatched bool // no directory is watched: waiters poll only
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

func (l *Locker) log() *slog.Logger {
	if l.Log != nil {
		return l.Log
	}
	return slog.New(slog.DiscardHandler)
}

// at is the seam at which tests delay or fail a change between two of its steps.
func (l *Locker) at(step, path string) error {
	if l.fault == nil {
		return nil
	}
	return l.fault(step, path)
}

// isLocal reports whether the directory lies on a file system of the allow-list.
func (l *Locker) isLocal(dir string) bool {
	fileSystem := l.local
	if fileSystem == nil {
		fileSystem = record.FileSystem
	}
	_, local := fileSystem(dir)
	return local
}

func (l *Locker) bootClock() time.Duration {
	if l.sinceBoot != nil {
		return l.sinceBoot()
	}
	return proc.SinceBoot()
}
