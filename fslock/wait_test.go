package fslock

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// waiter is an Acquire that is under way.
type waiter struct {
	lock *Lock
	err  error
	took time.Duration
	done chan struct{}
}

func acquiring(ctx context.Context, l *Locker, path string) *waiter {
	w := &waiter{done: make(chan struct{})}
	began := time.Now()
	go func() {
		defer close(w.done)
		w.lock, w.err = l.Acquire(ctx, path)
		w.took = time.Since(began)
	}()
	return w
}

// got waits for its lock.
func (w *waiter) got(t *testing.T) *Lock {
	t.Helper()
	<-w.done
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.lock
}

// tempsIn are the temps in a directory.
func tempsIn(t *testing.T, dir string) []string {
	t.Helper()
	var temps []string
	for _, name := range names(t, dir) {
		if _, _, ok := record.ParseTemp(name); ok {
			temps = append(temps, name)
		}
	}
	return temps
}

func TestWaiterShowsItselfByOneTemp(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		dir := filepath.Dir(path)
		held := take(t, timed(4242, c), path)
		w := acquiring(t.Context(), timed(5151, c), path)
		time.Sleep(time.Second)
		temps := tempsIn(t, dir)
		if len(temps) != 1 {
			t.Fatalf("temps: %q", temps)
		}
		if lock, pid, ok := record.ParseTemp(temps[0]); !ok || lock != "a.lock" || int(pid) != os.Getpid() {
			t.Errorf("its name is %q", temps[0])
		}
		temp := filepath.Join(dir, temps[0])
		first, was := lockAt(t, temp), contentOf(t, temp)
		if first.PID != 5151 || first.WriterEpoch == "" || first.WriterEpoch == held.WriterEpoch() {
			t.Errorf("its record: %s", was)
		}
		before, err := os.Stat(temp)
		if err != nil {
			t.Fatal(err)
		}
		// An hour of polls writes nothing.
		time.Sleep(time.Hour)
		after, err := os.Stat(temp)
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) || before.ModTime() != after.ModTime() || !bytes.Equal(was, contentOf(t, temp)) {
			t.Error("it was written again")
		}
		if got := tempsIn(t, dir); len(got) != 1 {
			t.Errorf("temps: %q", got)
		}
		if info := timed(4242, c).InspectTemp(temp); info.Verdict.State != verdict.InUse || info.Facts.PID != 5151 {
			t.Errorf("seen as %v of pid %d", info.Verdict.State, info.Facts.PID)
		}

		freed := time.Now()
		giveUp(t, held)
		lock := w.got(t)
		if now := lockAt(t, path); now.WriterEpoch != first.WriterEpoch || lock.WriterEpoch() != first.WriterEpoch ||
			now.CreatedAtMS < uint64(freed.UnixMilli()) || now.HeartbeatAtMS < uint64(freed.UnixMilli()) {
			t.Errorf("it was not freshened: %s", contentOf(t, path))
		}
		if after, err = os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("another file was linked (%v)", err)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("beside the lock: %q", got)
		}
		giveUp(t, lock)
	})
}

func TestWaiterThatGivesUpTakesItsTempAway(t *testing.T) {
	for what, end := range map[string]struct {
		act  func(t *testing.T, cancel func(), path string)
		want error
	}{
		"its context ends":      {func(_ *testing.T, cancel func(), _ string) { cancel() }, context.Canceled},
		"its deadline is over":  {func(*testing.T, func(), string) { time.Sleep(time.Minute) }, context.DeadlineExceeded},
		"what is no file comes": {comesADirectory, ErrUnreadable},
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				held := take(t, timed(4242, c), path)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				w := acquiring(ctx, timed(5151, c), path)
				time.Sleep(time.Second)
				if got := tempsIn(t, filepath.Dir(path)); len(got) != 1 {
					t.Fatalf("temps: %q", got)
				}
				end.act(t, cancel, path)
				<-w.done
				wantErrors(t, "acquire", w.err, end.want)
				if got := tempsIn(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
				giveUp(t, held)
			})
		})
	}
}

func comesADirectory(t *testing.T, _ func(), path string) {
	t.Helper()
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
}

func TestTempThatWasSweptIsMadeAnew(t *testing.T) {
	for _, how := range []string{"link", "no link", "neither link nor rename"} {
		t.Run(how, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				held := take(t, timed(4242, c), path)
				l := timed(5151, c)
				lacking(l, how)
				w := acquiring(t.Context(), l, path)
				time.Sleep(time.Second)
				for _, name := range tempsIn(t, filepath.Dir(path)) {
					if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil {
						t.Fatal(err)
					}
				}
				giveUp(t, held)
				lock := w.got(t)
				if err := lock.Verify(); err != nil {
					t.Error(err)
				}
				giveUp(t, lock)
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

// A dead lock that a token blocks is looked at every 5 s: who gets it sooner was woken by the directory's change.
func TestWaiterIsWokenWhenTheLockGoes(t *testing.T) {
	dir := t.TempDir()
	path := putLock(t, dir, "a.lock", lockRecord(time.Minute, dead))
	putLock(t, dir, ".a.lock.reclaim", lockRecord(0))
	l := &Locker{Table: machine(func(m *proctest.Machine) { m.PID = 5151 })}
	a, err := l.newAttempt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.backOff = backOffMax
	done := make(chan *Lock)
	go func() {
		lock, err := a.wait(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- lock
	}()
	for again := 0; again == 0; time.Sleep(time.Millisecond) { // till it has looked once more and waits
		l.state.Lock()
		if told := l.state.told[path]; told != nil {
			again = told.times
		}
		l.state.Unlock()
	}
	if l.state.watcher == nil {
		t.Skip("the system has no watch to give")
	}
	began := time.Now()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	lock := <-done
	if d := time.Since(began); d > backOffMax/2 {
		t.Errorf("it took %v", d)
	}
	if lock != nil {
		giveUp(t, lock)
	}
}

func TestHandOverInOneProcess(t *testing.T) {
	for what, unwatched := range map[string]bool{"watched": false, "polled": true} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.lock")
			l := &Locker{unwatched: unwatched}
			for range 5 {
				held := take(t, l, path)
				w := acquiring(t.Context(), l, path)
				for len(tempsIn(t, filepath.Dir(path))) == 0 {
					time.Sleep(time.Millisecond)
				}
				began := time.Now()
				giveUp(t, held)
				giveUp(t, w.got(t))
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("the hand-over took %v", d)
				}
			}
			if got := names(t, filepath.Dir(path)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
			if l.state.watcher != nil || len(l.state.dirs) != 0 || len(l.state.waiters) != 0 {
				t.Errorf("nobody waits, but %+v is watched", l.state.dirs)
			}
		})
	}
}

func TestDeadlineIsKeptOnEveryPath(t *testing.T) {
	blocking := func(t *testing.T, path string) {
		t.Helper()
		dir, name := filepath.Split(path)
		putLock(t, dir, record.TokenName(name), lockRecord(0))
	}
	lock := func(beat time.Duration, mod ...func(*record.Lock)) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			t.Helper()
			putLock(t, filepath.Dir(path), filepath.Base(path), lockRecord(beat, mod...))
		}
	}
	text := func(data string, age time.Duration) func(t *testing.T, path string) {
		return func(t *testing.T, path string) { t.Helper(); put(t, path, []byte(data), age) }
	}
	type lays []func(t *testing.T, path string)
	for what, tc := range map[string]struct {
		lay   lays
		busy  bool // somebody has the guard
		limit time.Duration
		want  error
		pid   uint32 // of the holder that is named; 0: none can be
	}{
		"held":                     {lay: lays{lock(time.Second)}, limit: time.Minute, want: ErrHeld, pid: 4242},
		"held, and no time at all": {lay: lays{lock(time.Second)}, limit: 0, want: ErrHeld, pid: 4242},
		"late":                     {lay: lays{lock(time.Hour)}, limit: time.Minute, want: ErrHeld, pid: 4242},
		"blocked by a token":       {lay: lays{lock(time.Second, dead), blocking}, limit: 9 * time.Second, want: ErrBlocked, pid: 999_999},
		"expired and blocked by a token": {
			lay: lays{lock(76*time.Second, remote), blocking}, limit: 30 * time.Second, want: ErrBlocked, pid: 4242,
		},
		"the guard is busy": {lay: lays{lock(time.Second, dead)}, busy: true, limit: 9 * time.Second, want: ErrBlocked},
		"malformed":         {lay: lays{text("[[package]]", time.Hour)}, limit: time.Minute, want: ErrHeld},
		"torn a moment ago": {lay: lays{text("", 0)}, limit: 14 * time.Second, want: ErrHeld},
		"expired, being watched": {
			lay: lays{lock(76*time.Second, remote)}, limit: 15 * time.Second, want: ErrHeld, pid: 4242,
		},
		"another machine's": {lay: lays{lock(time.Second, remote)}, limit: 30 * time.Second, want: ErrHeld, pid: 4242},
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				for _, lay := range tc.lay {
					lay(t, path)
				}
				l := timed(5151, c)
				if tc.busy {
					g, err := timed(4242, c).enterGuard(t.Context(), "test", path, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer g.leave()
				}
				was, beside := contentOf(t, path), names(t, filepath.Dir(path))
				for what, began := range map[string]func() (context.Context, context.CancelFunc){
					"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), tc.limit) },
					"cancel": func() (context.Context, context.CancelFunc) {
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(tc.limit, cancel)
						if tc.limit == 0 {
							cancel()
						}
						return ctx, cancel
					},
				} {
					if what == "cancel" && errors.Is(tc.want, ErrHeld) && tc.limit < time.Minute && tc.limit > 0 {
						continue // by now it may be taken
					}
					ctx, cancel := began()
					w := acquiring(ctx, l, path)
					<-w.done
					if w.took < tc.limit || w.took > tc.limit+2*time.Second {
						t.Errorf("%s: it took %v, not %v", what, w.took, tc.limit)
					}
					wantErrors(t, what, w.err, tc.want, ctx.Err())
					e, ok := errors.AsType[*ConflictError](w.err)
					if tc.pid != 0 && (!ok || e.Holder == nil || e.Holder.PID != tc.pid || !strings.Contains(e.Error(), path)) {
						t.Errorf("%s: the holder is not named: %v", what, w.err)
					}
					cancel()
				}
				if !bytes.Equal(contentOf(t, path), was) {
					t.Error("the lock was written")
				}
				if got := names(t, filepath.Dir(path)); len(got) != len(beside) {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

func TestAtLeastOneAttemptIsMade(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l := timed(5151, c)
		lock, err := l.Acquire(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		// Nor does one who lets another go first come away with nothing.
		put(t, filepath.Join(filepath.Dir(path), ".a.lock.tmp.4242.1.0"), lockRecord(0).Encode(), 0)
		giveUp(t, lock)
		if lock, err = l.Acquire(ctx, path); err != nil {
			t.Fatal(err)
		}
		giveUp(t, lock)
	})
}

func TestDeadLockThatATokenBlocksIsLookedAtRarely(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		dir := filepath.Dir(path)
		putLock(t, dir, "a.lock", lockRecord(time.Minute, dead))
		token := putLock(t, dir, ".a.lock.reclaim", lockRecord(0))
		l := timed(5151, c)
		// tries tells how often it came upon the token within some time; the first was told, the others only counted.
		tries := func(d time.Duration) int {
			count := func() int {
				l.state.Lock()
				defer l.state.Unlock()
				if told := l.state.told[path]; told != nil {
					return told.times
				}
				return -1
			}
			before := count()
			time.Sleep(d)
			synctest.Wait()
			return count() - before
		}
		w := acquiring(t.Context(), l, path)
		if n := tries(time.Minute - 1); n < 12 || n > 17 {
			t.Errorf("%d tries in a minute", n)
		}
		// Any other outcome resets it.
		putLock(t, dir, "a.lock", lockRecord(0))
		time.Sleep(backOffMax + time.Second)
		tries(0)
		l.state.Lock()
		clear(l.state.told)
		l.state.Unlock()
		putLock(t, dir, "a.lock", lockRecord(0, dead))
		if n := tries(2 * time.Second); n < 3 || n > 5 {
			t.Errorf("%d tries within 2 s after it was held", n)
		}
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		giveUp(t, w.got(t))
	})
}

func TestWhoeverComesToAFreeLockLetsALiveWaiterGoFirst(t *testing.T) {
	for what, tc := range map[string]struct {
		pid       int
		condition proc.Condition
		stays     bool
	}{
		"a live waiter":    {4242, proc.Running, true},
		"a stopped waiter": {4242, proc.Stopped, false},
		"a dead waiter":    {999_999, proc.Running, false},
		"nobody":           {0, proc.Running, false},
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				l := timed(5151, c)
				l.Table = machine(func(m *proctest.Machine) { m.PID, m.Procs[0].Condition = 5151, tc.condition })
				if tc.pid != 0 {
					putLock(t, filepath.Dir(path), ".a.lock.tmp.4242.1.0", lockRecord(0, func(r *record.Lock) { r.PID = uint32(tc.pid) }))
				}
				// Another lock's waiter is nobody's business.
				put(t, filepath.Join(filepath.Dir(path), ".aa.lock.tmp.4242.1.0"), lockRecord(0).Encode(), 0)
				lock := take(t, l, path)
				for range 3 {
					giveUp(t, lock)
					w := acquiring(t.Context(), l, path)
					lock = w.got(t)
					if tc.stays && (w.took < pollInterval || w.took > 3*pollInterval) || !tc.stays && w.took != 0 {
						t.Errorf("it stayed back for %v", w.took)
					}
				}
				giveUp(t, lock)
				another := timed(5151, c)
				another.Table = l.Table
				w := acquiring(t.Context(), another, path)
				giveUp(t, w.got(t))
				if tc.stays != (w.took >= pollInterval) {
					t.Errorf("another stayed back for %v", w.took)
				}
				// A try does not wait, for anybody.
				giveUp(t, take(t, l, path))
				giveUp(t, take(t, l, path))
			})
		})
	}
}

// Who lets another go first, and has less time than that, comes to a last attempt.
func TestFreeLockIsHadWithinAShortDeadline(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		putLock(t, filepath.Dir(path), ".a.lock.tmp.4242.1.0", lockRecord(0))
		ctx, cancel := context.WithTimeout(t.Context(), pollInterval/2)
		defer cancel()
		w := acquiring(ctx, timed(5151, c), path)
		giveUp(t, w.got(t))
		if w.took != pollInterval/2 {
			t.Errorf("it took %v", w.took)
		}
	})
}

func TestManyWaitersOfOneLockerComeToTheirTurn(t *testing.T) {
	dir := t.TempDir()
	l := &Locker{}
	var inside [3]atomic.Int32
	var done atomic.Int32
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i%3))+".lock")
			for range 3 {
				lock, err := l.Acquire(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if inside[i%3].Add(1) != 1 {
					t.Error("two have it")
				}
				inside[i%3].Add(-1)
				done.Add(1)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := done.Load(); n != 36 {
		t.Errorf("%d got it", n)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
	if l.state.watcher != nil || len(l.state.dirs) != 0 || len(l.state.waiters) != 0 {
		t.Errorf("nobody waits, but %+v is watched", l.state.dirs)
	}
}

func TestDirectoryThatGoesWhileSomebodyWaitsEndsTheWait(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		path = filepath.Join(filepath.Dir(path), "dir", "a.lock")
		putLock(t, filepath.Dir(path), "a.lock", lockRecord(0))
		w := acquiring(t.Context(), timed(5151, c), path)
		time.Sleep(time.Second)
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-w.done:
		default:
			t.Fatal("it waits on")
		}
		wantErrors(t, "acquire", w.err, os.ErrNotExist)
		if e, ok := errors.AsType[*IOError](w.err); !ok || e.Path != path {
			t.Errorf("acquire: %#v", w.err)
		}
	})
}
