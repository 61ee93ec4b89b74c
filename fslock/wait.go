package fslock

import (
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"holdfast/fslock/verdict"
)

// waiting is what a Locker knows beside what it looked at: who waits, who else does, what was logged.
type waiting struct {
	sync.Mutex

	told    map[string]*repeated
	waiters map[string]map[chan struct{}]bool // by path
	polls   map[string]poll                   // of the originals, by path
	dirs    map[string]int                    // waiters by directory
	watcher *fsnotify.Watcher                 // there while somebody waits, if the system has one to give
	ended   chan struct{}                     // closed when nobody reads from watcher any more
}

// repeated is a warning that was given, and how often it would have been since.
type repeated struct {
	at    time.Time
	times int
}

// logEvery is how often the same warning about one path is given.
const logEvery = time.Minute

// waits reports whether somebody waits for the lock by this Locker.
func (l *Locker) waits(path string) bool {
	l.state.Lock()
	defer l.state.Unlock()
	return len(l.state.waiters[path]) > 0
}

// logBlocked warns of a token that blocks, at most once a minute a path. It claims no removal: there was none.
func (l *Locker) logBlocked(path string, t *verdict.Token) {
	now := time.Now()
	l.state.Lock()
	if l.state.told == nil {
		l.state.told = make(map[string]*repeated)
	}
	last := l.state.told[path]
	if last != nil && now.Sub(last.at) < logEvery {
		last.times++
		l.state.Unlock()
		return
	}
	times := 0
	if last != nil {
		times = last.times
	}
	l.state.told[path] = &repeated{at: now}
	maps.DeleteFunc(l.state.told, func(_ string, r *repeated) bool { return now.Sub(r.at) > 2*logEvery })
	l.state.Unlock()
	log := l.log().With(slog.String("path", path), slog.Uint64("pid", uint64(t.PID)), slog.String("state", t.State.String()))
	if times > 0 {
		log = log.With(slog.Int("repeated", times))
	}
	log.Warn(MsgBlocked)
}

// changes tells whenever the directory's entry of that name changes, as a hint: the system may lose some, or have no
// watch to give. All waiters of a Locker share one inotify instance. The channel holds one.
func (l *Locker) changes(path string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	dir := filepath.Dir(path)
	if l.unwatched || filepath.Clean(path) != path {
		// The watch would tell of another name: there are still polls.
		return c, func() {}
	}
	l.state.Lock()
	defer l.state.Unlock()
	if l.state.waiters == nil {
		l.state.waiters, l.state.dirs = make(map[string]map[chan struct{}]bool), make(map[string]int)
	}
	if l.state.watcher == nil {
		if w, err := fsnotify.NewBufferedWatcher(64); err == nil {
			l.state.watcher, l.state.ended = w, make(chan struct{})
			go l.forward(w, l.state.ended)
		}
	}
	if l.state.dirs[dir]++; l.state.dirs[dir] == 1 && l.state.watcher != nil {
		_ = l.state.watcher.Add(dir) // without it there are still polls
	}
	if l.state.waiters[path] == nil {
		l.state.waiters[path] = make(map[chan struct{}]bool)
	}
	l.state.waiters[path][c] = true
	return c, func() { l.forget(path, c) }
}

// forget ends what changes began; with the last waiter the watch ends, too.
func (l *Locker) forget(path string, c chan struct{}) {
	dir := filepath.Dir(path)
	l.state.Lock()
	delete(l.state.waiters[path], c)
	if len(l.state.waiters[path]) == 0 {
		delete(l.state.waiters, path)
		delete(l.state.polls, path)
	}
	var ended chan struct{}
	if l.state.dirs[dir]--; l.state.dirs[dir] == 0 {
		delete(l.state.dirs, dir)
		switch {
		case l.state.watcher == nil:
		case len(l.state.dirs) > 0:
			_ = l.state.watcher.Remove(dir)
		default:
			_ = l.state.watcher.Close()
			l.state.watcher, ended = nil, l.state.ended
		}
	}
	l.state.Unlock()
	if ended != nil {
		<-ended
	}
}

// forward wakes the waiters for a name that changed. A write is none: a heartbeat frees nothing.
func (l *Locker) forward(w *fsnotify.Watcher, ended chan<- struct{}) {
	defer close(ended)
	for {
		select {
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 {
				l.notePoll(e)
				l.wake(e.Name)
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			l.wake("") // some were lost: it could have been anybody's
		}
	}
}

func (l *Locker) wake(name string) {
	l.state.Lock()
	defer l.state.Unlock()
	for path, waiters := range l.state.waiters {
		if name != "" && path != name {
			continue
		}
		for c := range waiters {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
