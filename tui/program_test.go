package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// tape keeps what a screen wrote.
type tape struct {
	mu      sync.Mutex
	all     strings.Builder
	written int
}

func (w *tape) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written += len(b)
	if w.all.Len() > 1<<20 {
		w.all.Reset()
	}
	return w.all.Write(b)
}

func (w *tape) has(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.all.String(), part)
}

func (w *tape) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written
}

// rehearsal is a whole program without a terminal, in a bubble of fake time.
type rehearsal struct {
	*Screen
	tape *tape
	keys *io.PipeWriter
	over chan error
	stop context.CancelFunc
}

func rehearse(t *testing.T, s *Screen) *rehearsal {
	t.Helper()
	keys, typing := io.Pipe()
	r := &rehearsal{Screen: s, tape: &tape{}, keys: typing, over: make(chan error, 1)}
	s.In, s.Out, s.tests.crashDir = keys, r.tape, t.TempDir()
	if s.tests.signals == nil {
		s.tests.signals = make(chan os.Signal, 2)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.over <- s.Run(ctx) }()
	time.Sleep(time.Second)
	return r
}

func (r *rehearsal) press(names ...string) {
	for _, name := range names {
		_, _ = io.WriteString(r.keys, name)
		time.Sleep(500 * time.Millisecond)
	}
}

// end waits for the screen and lets whatever it left behind run out. A clock that goes on for ever is no deadlock to the
// bubble, so the wait has an end.
func (r *rehearsal) end() (err error) {
	select {
	case err = <-r.over:
	case <-time.After(10 * time.Minute):
		r.stop()
		err = fmt.Errorf("still open, and then ended with %w", <-r.over)
	}
	_ = r.keys.Close()
	r.stop()
	time.Sleep(2 * time.Minute)
	return err
}

// polling looks at once and every interval.
func polling(w *watch.Watcher, interval time.Duration) func(context.Context, func(*watch.Snapshot)) error {
	return func(ctx context.Context, emit func(*watch.Snapshot)) error {
		for {
			s, err := w.Look(ctx)
			if err != nil {
				return err
			}
			emit(s)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(interval):
			}
		}
	}
}

func TestAnHourWithALeaseHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, store := registryOf(t)
		s.Watch = polling(w, 10*time.Second)
		r := rehearse(t, s)
		r.press("C", "y")
		if !r.tape.has("Claimed agent with epoch 7") {
			t.Error("the claim is not told")
		}
		begun := time.Now()
		before := r.tape.count()
		for range 60 {
			time.Sleep(time.Minute)
			r.press("j", "?", "\x1b")
			if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Live || !info.Verdict.Flags.Has(verdict.Mine) {
				t.Fatalf("after %v the lease is %v", time.Since(begun), info.Verdict.State)
			}
		}
		if second := float64(r.tape.count()-before) / time.Since(begun).Seconds(); second > 2000 {
			t.Errorf("%.0f bytes a second for one renewal", second)
		}
		r.press("q", "\r")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Free || info.Epoch != 7 {
			t.Errorf("after the end the lease is %v, epoch %d", info.Verdict.State, info.Epoch)
		}
	})
}

func TestTenMinutesWithALockHeld(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	synctest.Test(t, func(t *testing.T) {
		k.s.Watch = polling(k.w, 10*time.Second)
		r := rehearse(t, k.s)
		r.press("A", "y")
		if !r.tape.has("Acquired index/8eb3d10c88aa02f1/cache.lock") {
			t.Error("it is not told")
		}
		for range 10 {
			time.Sleep(time.Minute)
			if info := k.w.Locker().Inspect(k.lock); info.Verdict.State != verdict.Live || !info.Verdict.Flags.Has(verdict.Mine) {
				t.Fatalf("the lock is %v", info.Verdict.State)
			}
		}
		r.press("q", "\r")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
		if exists(k.lock) {
			t.Error("the lock is still there")
		}
	})
}

func TestLeaseThatSomebodyRemovesIsToldAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, store := registryOf(t)
		r := rehearse(t, s)
		r.press("C", "y")
		if err := os.Remove(filepath.Join(store.Dir, "agent.lease.json")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !r.tape.has("Lost lease agent") {
			t.Error("the loss is not told")
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestQuietScreenWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screenFor()
		s.Watch = func(ctx context.Context, emit func(*watch.Snapshot)) error {
			emit(&watch.Snapshot{Seq: 1, Time: time.Now()})
			<-ctx.Done()
			return nil
		}
		r := rehearse(t, s)
		before := r.tape.count()
		time.Sleep(time.Hour)
		if perMinute := (r.tape.count() - before) / 60; perMinute > 400 {
			t.Errorf("%d bytes a minute for a clock", perMinute)
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestFloodOfSnapshotsIsShownTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screenFor()
		s.Watch = func(ctx context.Context, emit func(*watch.Snapshot)) error {
			for seq := uint64(1); ctx.Err() == nil; seq++ {
				emit(&watch.Snapshot{Seq: seq, Time: time.Now()})
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		r := rehearse(t, s)
		time.Sleep(10 * time.Second)
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestSignalsEndTheScreenWithTheirCode(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		synctest.Test(t, func(t *testing.T) {
			s, _, store := registryOf(t)
			r := rehearse(t, s)
			r.press("C", "y")
			s.tests.signals <- sig
			var end *ExitError
			if err := r.end(); !errors.As(err, &end) || end.Code != 128+int(sig) {
				t.Errorf("%v: ended with %v", sig, err)
			} else if !strings.Contains(end.Error(), "released lease agent") {
				t.Errorf("%v: the release is not told: %v", sig, end)
			}
			if info, _ := store.Inspect("agent"); info.Verdict.State != verdict.Free {
				t.Errorf("%v: the lease is %v", sig, info.Verdict.State)
			}
		})
	}
}

// slow is a lease whose release takes longer than anybody waits.
type slow struct{ pretended }

func (slow) Release() error {
	time.Sleep(time.Minute)
	return nil
}

func TestSecondSignalWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := registryOf(t)
		s.tests.claim = func(context.Context, *lease.Store, string, lease.Claimant) (holding, error) { return slow{}, nil }
		r := rehearse(t, s)
		r.press("C", "y")
		begun := time.Now()
		s.tests.signals <- syscall.SIGTERM
		time.Sleep(time.Second)
		s.tests.signals <- syscall.SIGTERM
		err := <-r.over
		if waited := time.Since(begun); waited > 2*time.Second {
			t.Errorf("waited %v", waited)
		}
		r.over <- err
		var end *ExitError
		if err := r.end(); !errors.As(err, &end) || end.Code != 143 || !strings.Contains(end.Error(), "lease agent is not released; it runs out by itself by") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestReleaseThatHangsIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := registryOf(t)
		s.tests.claim = func(context.Context, *lease.Store, string, lease.Claimant) (holding, error) { return slow{}, nil }
		r := rehearse(t, s)
		r.press("C", "y", "q")
		begun := time.Now()
		r.press("\r")
		err := <-r.over
		if waited := time.Since(begun); waited > releaseGrace+joinGrace+2*time.Second {
			t.Errorf("waited %v", waited)
		}
		r.over <- err
		var end *ExitError
		if err := r.end(); !errors.As(err, &end) || end.Code != exitFailed || !strings.Contains(end.Error(), "runs out") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestEndOfTheContextEndsTheScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rehearse(t, screenFor())
		r.stop()
		if err := r.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWatcherThatStopsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screenFor()
		s.Watch = func(_ context.Context, emit func(*watch.Snapshot)) error {
			emit(everything(time.Now()))
			return errMadeUp
		}
		r := rehearse(t, s)
		if !r.tape.has("The watcher has stopped, so this picture is old: made up") {
			t.Error("it is not told")
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestTerminalThatIsGoneEndsTheScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := screenFor()
		r := rehearse(t, s)
		var end *ExitError
		gone := screenFor()
		gone.Out, gone.tests.crashDir = brokenTerminal{}, t.TempDir()
		gone.tests.signals = make(chan os.Signal, 1)
		if err := gone.Run(t.Context()); !errors.As(err, &end) || end.Code != 129 {
			t.Errorf("ended with %v", err)
		}
		r.press("q")
		if err := r.end(); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

type brokenTerminal struct{}

func (brokenTerminal) Write([]byte) (int, error) { return 0, syscall.EIO }

func TestPanicsAreReported(t *testing.T) {
	for where, breakIt := range map[string]func(*Screen){
		"watcher": func(s *Screen) {
			s.Watch = func(_ context.Context, emit func(*watch.Snapshot)) error {
				emit(everything(time.Now()))
				time.Sleep(3 * time.Second)
				panic("boom \x1b[2J")
			}
		},
		"update": func(s *Screen) {
			s.tests.onKey = func(*harness, string) { panic("boom \x1b[2J") }
		},
		"view": func(s *Screen) {
			s.tests.onKey = func(h *harness, _ string) { h.model.paint = nil }
		},
		"job": func(s *Screen) {
			s.Stores = func(string) *lease.Store { return &lease.Store{Dir: leases} }
			s.tests.onKey = func(h *harness, _ string) {
				h.model.describe = nil
				h.model.rows, h.model.tab, h.model.cursor = []*row{{entry: everything(time.Now()).Entries[0]}}, tabProcess, 0
			}
		},
	} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := screenFor()
				s.Watch = func(ctx context.Context, emit func(*watch.Snapshot)) error {
					emit(everything(time.Now()))
					<-ctx.Done()
					return nil
				}
				breakIt(s)
				r := rehearse(t, s)
				r.press("x")
				time.Sleep(5 * time.Second)
				var end *ExitError
				err := r.end()
				if !errors.As(err, &end) || end.Code != exitInternal {
					t.Fatalf("ended with %v", err)
				}
				report, readErr := os.ReadFile(end.Crash)
				if readErr != nil {
					t.Fatal(readErr)
				}
				if !strings.Contains(string(report), "goroutine") || !strings.Contains(string(report), "crashed in "+where) {
					t.Errorf("the report says:\n%s", report)
				}
				if info, err := os.Stat(end.Crash); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the report's mode: %v %v", info.Mode(), err)
				}
				if !strings.Contains(end.Error(), end.Crash) || strings.Contains(end.Error(), "\x1b") {
					t.Errorf("the message is %q", end.Error())
				}
			})
		})
	}
}
