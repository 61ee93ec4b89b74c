package fslock

import (
	"context"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// A contender that watches the directory has a lock within a millisecond of its release; an original looks every tenth
// of a second, and a program that takes a lock as often as it can does not look at all. So that nobody starves:
//
//   - whoever comes to a free lock beside which another contender waits stays back one poll, once;
//   - every other time that a lock becomes free while originals were seen polling for it, all that wait by this package
//     stay back until one of those has had time to come. The holder's nonce is the coin, which all of them have seen.
const (
	originalPoll = pollInterval * 13 / 10 // between two polls of an original, and what it takes for one
	pollsRecent  = 5 * pollInterval / 2   // so old a poll is still one of somebody who waits
)

// turn is what a contender knows of the others' turns.
type turn struct {
	looked bool      // for others that wait
	holder string    // the nonce of who held the lock at the last look
	held   bool      // somebody did
	until  time.Time // till when others go first
}

// poll is what was seen of the originals' polls for one lock: each makes a temp, which it removes again when it cannot
// be linked.
type poll struct {
	temps map[string]bool // made, and neither removed nor linked
	last  time.Time
}

// yields reports whether others go first, now that the lock is free.
func (a *attempt) yields(ctx context.Context) bool {
	t := &a.turn
	now := time.Now()
	switch {
	case ctx.Err() != nil:
		return false // it is the last attempt
	case t.held:
		if a.locker.originalsPoll(a.path, now) && heads(t.holder) {
			t.until = now.Add(originalPoll)
		}
	case !t.looked && a.locker.othersWait(a.path):
		t.until = now.Add(pollInterval)
	}
	t.held, t.looked = false, true
	return now.Before(t.until)
}

// sawHeld takes note of who holds the lock: others have had their turn.
func (t *turn) sawHeld(r *record.Lock) {
	*t = turn{looked: true, held: true}
	if r != nil {
		t.holder = r.WriterEpoch
	}
}

func heads(nonce string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(nonce))
	return h.Sum32()&1 == 0
}

func (l *Locker) originalsPoll(path string, now time.Time) bool {
	l.state.Lock()
	defer l.state.Unlock()
	last := l.state.polls[path].last
	return !last.IsZero() && now.Sub(last) < pollsRecent
}

// notePoll takes note of temps that come and go for a lock that is waited for.
func (l *Locker) notePoll(e fsnotify.Event) {
	l.state.Lock()
	defer l.state.Unlock()
	if l.state.waiters[e.Name] != nil {
		if e.Has(fsnotify.Create) {
			clear(l.state.polls[e.Name].temps) // one of them was linked, and will be removed for that
		}
		return
	}
	dir, name := filepath.Split(e.Name)
	lock, pid, ok := record.ParseTemp(name)
	path := dir + lock
	if !ok || int(pid) == os.Getpid() || l.state.waiters[path] == nil {
		return
	}
	p := l.state.polls[path]
	switch {
	case e.Has(fsnotify.Create):
		if p.temps == nil {
			p.temps = make(map[string]bool)
		}
		p.temps[name] = true
	case e.Has(fsnotify.Remove) && p.temps[name]:
		delete(p.temps, name)
		p.last = time.Now()
	default:
		delete(p.temps, name)
	}
	if l.state.polls == nil {
		l.state.polls = make(map[string]poll)
	}
	l.state.polls[path] = p
}

// maxNames bounds what an attempt reads of its directory.
const maxNames = 1024

// othersWait looks for the temp of a living contender.
func (l *Locker) othersWait(path string) bool {
	dir, name := filepath.Split(path)
	d, err := os.OpenFile(dir, os.O_RDONLY|guardDirFlags, 0)
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxNames)
	for _, n := range names {
		lock, pid, ok := record.ParseTemp(n)
		if !ok || !isTempOf(lock, name) || int(pid) == os.Getpid() && !l.waits(path) {
			continue
		}
		if t := l.InspectTemp(dir + n); !t.Facts.Missing && t.Facts.Proc.Answer == proc.Alive && t.Facts.Proc.Condition == proc.Running {
			return true
		}
	}
	return false
}

// isTempOf reports whether a temp's name is one of that lock: as much of the lock's name as a temp's can hold.
func isTempOf(kept, name string) bool {
	return kept == name || len(name) > len(kept) && len(kept) > 200 && name[:len(kept)] == kept
}
