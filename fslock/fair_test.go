package fslock

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// An original shows that it waits by a temp that it makes and removes again, ten times a second.
func TestOriginalsThatPollAreSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	temp := func(i int) string { return filepath.Join(filepath.Dir(path), fmt.Sprintf(".a.lock.tmp.4242.%d.0", i)) }
	for what, tc := range map[string]struct {
		events []fsnotify.Event
		seen   bool
	}{
		"a poll":                     {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Create}, {Name: temp(1), Op: fsnotify.Remove}}, true},
		"a waiter of ours":           {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Create}}, false},
		"a heartbeat by rename":      {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Create}, {Name: temp(1), Op: fsnotify.Rename}, {Name: path, Op: fsnotify.Create}}, false},
		"a lock that was taken":      {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Create}, {Name: path, Op: fsnotify.Create}, {Name: temp(1), Op: fsnotify.Remove}}, false},
		"one that we came amid":      {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Remove}}, false},
		"a poll for another lock":    {[]fsnotify.Event{{Name: temp(1) + "x", Op: fsnotify.Create}, {Name: temp(1) + "x", Op: fsnotify.Remove}}, false},
		"a poll and then one by one": {[]fsnotify.Event{{Name: temp(1), Op: fsnotify.Create}, {Name: temp(2), Op: fsnotify.Create}, {Name: temp(1), Op: fsnotify.Remove}}, true},
	} {
		l := &Locker{unwatched: false}
		_, stop := l.changes(path)
		for _, e := range tc.events {
			l.notePoll(e)
		}
		if seen := l.originalsPoll(path, time.Now()); seen != tc.seen {
			t.Errorf("%s: seen %v", what, seen)
		}
		if l.originalsPoll(path, time.Now().Add(pollsRecent)) {
			t.Errorf("%s: seen for ever", what)
		}
		stop()
		if l.originalsPoll(path, time.Now()) {
			t.Errorf("%s: seen by nobody", what)
		}
	}
}

// Every other holder's end, as all of ours toss the same coin, is the originals' turn; nobody holds back for ever.
func TestOriginalsThatPollHaveTheirTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	l := &Locker{}
	_, stop := l.changes(path)
	defer stop()
	l.state.Lock()
	l.state.polls = map[string]poll{path: {last: time.Now()}}
	l.state.Unlock()
	back := 0
	for i := range 1000 {
		a, err := l.newAttempt(path)
		if err != nil {
			t.Fatal(err)
		}
		nonce := fmt.Sprintf("4242-%d", i)
		a.turn.sawHeld(lockRecord(0))
		a.turn.holder = nonce
		l.state.Lock()
		l.state.polls[path] = poll{last: time.Now()}
		l.state.Unlock()
		if a.yields(t.Context()) != heads(nonce) {
			t.Fatal("not by the coin")
		}
		if heads(nonce) {
			back++
			if wait := time.Until(a.turn.until); wait > originalPoll {
				t.Fatalf("it stays back for %v", wait)
			}
		}
		a.turn.until = a.turn.until.Add(-originalPoll)
		if a.yields(t.Context()) {
			t.Fatal("it stays back a second time")
		}
	}
	if back < 300 || back > 700 {
		t.Errorf("back %d times of 1000", back)
	}
}
