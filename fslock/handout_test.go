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
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// stepsOf counts the steps that a locker takes.
func stepsOf(l *Locker) (count func(step string) int) {
	var mu sync.Mutex
	seen := make(map[string]int)
	next := l.fault
	l.fault = func(step, path string) error {
		mu.Lock()
		seen[step]++
		mu.Unlock()
		if next != nil {
			return next(step, path)
		}
		return nil
	}
	return func(step string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[step]
	}
}

func TestStoppedBeforeItWasLinkedItBeatsBeforeItIsHandedOut(t *testing.T) {
	for _, tc := range []struct {
		step  string
		slept time.Duration
		beats int
	}{
		{"freshened", 0, 0},
		{"freshened", time.Second, 0},
		{"freshened", 5 * time.Second, 1},
		{"freshened", 80 * time.Second, 0}, // it may have been given up already, and is taken anew
		{"published", 5 * time.Second, 1},
	} {
		t.Run(tc.step+" "+tc.slept.String(), func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				l := timed(4242, c)
				var once sync.Once
				l.fault = func(step, _ string) error {
					if step == tc.step {
						once.Do(func() {
							time.Sleep(tc.slept / 2) // as well by the wall clock
							c.suspend(tc.slept - tc.slept/2)
						})
					}
					return nil
				}
				count := stepsOf(l)
				lock := take(t, l, path)
				if n := count("beating"); n != tc.beats {
					t.Errorf("%d beats", n)
				}
				age := c.now().Milliseconds() - lockAt(t, path).Ours.BeatBootMS
				if age > freshFor.Milliseconds() {
					t.Errorf("handed out %d ms after its last beat", age)
				}
				if err := lock.Verify(); err != nil {
					t.Error(err)
				}
				giveUp(t, lock)
			})
		})
	}
}

func TestLockThatVanishesBeforeItIsHandedOutIsNotHandedOut(t *testing.T) {
	foreign := lockRecord(0, func(r *record.Lock) { r.PID = 5151; r.ProcessStartTime = new(uint64(888)) }).Encode()
	for what, replace := range map[string]func(path string) error{
		"gone":      os.Remove,
		"another's": func(path string) error { return replaceBy(path, foreign) },
	} {
		for _, how := range []string{"link", "no link", "neither link nor rename"} {
			t.Run(what+" with "+how, func(t *testing.T) {
				inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
					l := timed(4242, c)
					lacking(l, how)
					left := 2
					l.fault = func(step, path string) error {
						if step != "published" || left == 0 {
							return nil
						}
						left--
						return replace(path)
					}
					count := stepsOf(l)
					if what != "gone" {
						_, err := l.TryAcquire(path)
						wantErrors(t, "try", err, ErrHeld)
						if e, ok := errors.AsType[*ConflictError](err); !ok || e.Holder == nil || e.Holder.PID != 5151 {
							t.Errorf("the holder is not named: %#v", err)
						}
						if got := contentOf(t, path); !bytes.Equal(got, foreign) {
							t.Errorf("the other's file: %q", got)
						}
						if got := names(t, filepath.Dir(path)); len(got) != 1 {
							t.Errorf("left behind: %q", got)
						}
						return
					}
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					lock, err := l.Acquire(ctx, path)
					if err != nil {
						t.Fatal(err)
					}
					if n := count("published"); n != 3 {
						t.Errorf("published %d times", n)
					}
					if err := lock.Verify(); err != nil {
						t.Error(err)
					}
					time.Sleep(beatInterval)
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
}

func TestLockThatAlwaysVanishesIsNobodys(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		l.fault = func(step, path string) error {
			if step == "published" {
				return os.Remove(path)
			}
			return nil
		}
		_, err := l.TryAcquire(path)
		wantErrors(t, "try", err, ErrHeld)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err = l.Acquire(ctx, path)
		wantErrors(t, "acquire", err, context.DeadlineExceeded, ErrHeld)
		if d := time.Since(began); d > 12*time.Second {
			t.Errorf("it took %v", d)
		}
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestFailureAtAnyStepOfAnAcquisitionLeavesNoLock(t *testing.T) {
	for _, step := range []string{"freshened", "published", "beating"} {
		t.Run(step, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				l := timed(4242, c)
				l.fault = func(at, _ string) error {
					if step == "beating" && at == "published" {
						c.suspend(5 * time.Second)
					}
					if at == step {
						return syscall.EIO
					}
					return nil
				}
				_, err := l.TryAcquire(path)
				wantErrors(t, "try", err, syscall.EIO)
				if e, ok := errors.AsType[*IOError](err); !ok || e.Path != path {
					t.Errorf("%#v", err)
				}
				_, err = l.Acquire(t.Context(), path)
				wantErrors(t, "acquire", err, syscall.EIO)
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

// An original is at work with a token, so that the lock has to be taken back; meanwhile somebody stops with the guard.
func TestLockThatIsTakenBackIsNotWaitedFor(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		g, err := timed(4242, c).enterGuard(t.Context(), "test", path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer g.leave()
		putLock(t, filepath.Dir(path), record.TokenName("a.lock"), lockRecord(0, func(r *record.Lock) { r.CreatedAtMS = ms(0) }))
		l := timed(5151, c)
		began := time.Now()
		_, err = l.TryAcquire(path)
		wantErrors(t, "try", err, ErrBlocked)
		if d := time.Since(began); d > 0 {
			t.Errorf("the try took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = l.Acquire(ctx, path)
		wantErrors(t, "acquire", err, ErrBlocked, context.DeadlineExceeded)
		if d := time.Since(began); d > 60*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		if got := names(t, filepath.Dir(path)); len(got) != 1 {
			t.Errorf("left behind: %q", got)
		}
	})
}

// The machine sleeps between the last beat and the last look before it is handed out.
func TestStaleBeforeItIsHandedOutIsTakenAnew(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		asked := -1 // how often the clock was, since the lock was published
		l.fault = func(step, _ string) error {
			if step == "published" && asked < 0 {
				asked = 0
			}
			return nil
		}
		l.sinceBoot = func() time.Duration {
			if asked >= 0 {
				switch asked++; asked {
				case 1:
					c.suspend(2 * freshFor)
				case 3:
					c.suspend(staleAfter)
				}
			}
			return c.now()
		}
		lock, err := l.Acquire(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Verify(); err != nil || asked < 4 {
			t.Errorf("asked %d times: %v", asked, err)
		}
		giveUp(t, lock)
	})
}

// lacking lets a file system lack hard links, or the rename that replaces nothing as well.
func lacking(l *Locker, how string) {
	unsupported := func(string, string) error { return syscall.EOPNOTSUPP }
	switch how {
	case "no link":
		l.link = unsupported
	case "neither link nor rename":
		l.link, l.rename = unsupported, unsupported
	}
}

func TestLockWithoutHardLinks(t *testing.T) {
	for _, how := range []string{"link", "no link", "neither link nor rename"} {
		t.Run(how, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				var winner *Lock
				for pid := range 2 {
					l := timed([]int{4242, 5151}[pid], c)
					lacking(l, how)
					lock, err := l.TryAcquire(path)
					if winner == nil && err == nil {
						winner = lock
						continue
					}
					wantErrors(t, "the second", err, ErrHeld)
				}
				for range 3 {
					time.Sleep(beatInterval)
					if err := winner.Verify(); err != nil {
						t.Error(err)
					}
				}
				if now := lockAt(t, path); now.HeartbeatAtMS <= now.CreatedAtMS {
					t.Errorf("it does not beat: %s", contentOf(t, path))
				}
				if got := names(t, filepath.Dir(path)); len(got) != 1 {
					t.Errorf("beside the lock: %q", got)
				}
				giveUp(t, winner)
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

func TestManyContendersWithoutHardLinksExcludeEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	var inside, done atomic.Int32
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			l := &Locker{}
			lacking(l, "neither link nor rename")
			for range 5 {
				lock, err := l.Acquire(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have it")
				}
				if err := lock.Verify(); err != nil {
					t.Error(err)
				}
				done.Add(1)
				inside.Add(-1)
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := done.Load(); n != 30 {
		t.Errorf("%d got it", n)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestLockOffTheLocalFileSystems(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		network := func(string) (string, bool) { return "nfs", false }
		l := timed(4242, c)
		l.local = network
		lock := take(t, l, path)
		for range 3 {
			time.Sleep(beatInterval)
			if err := lock.Verify(); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan *Lock)
		go func() {
			other := timed(5151, c)
			other.local = network
			lock, err := other.Acquire(ctx, path)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		time.Sleep(time.Second)
		giveUp(t, lock)
		next := <-got
		if next == nil {
			return
		}
		giveUp(t, next)
		// The guard is a file there, and stays: whoever removed it would let two in.
		if got := strings.Join(names(t, filepath.Dir(path)), " "); got != ".a.lock.guard" {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestBeatOfAnotherOwnersRecordIsSeenByInspect(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		lock := take(t, timed(4242, c), path)
		look := timed(5151, c)
		for range 60 {
			time.Sleep(1300 * time.Millisecond)
			v := look.Inspect(path).Verdict
			if v.State != verdict.Live || v.Flags.Has(verdict.Mine) {
				t.Fatalf("seen as %v %v: %s", v.State, v.Flags.Strings(), v.Sentence)
			}
		}
		giveUp(t, lock)
		if v := look.Inspect(path).Verdict; v.State != verdict.Free {
			t.Errorf("seen as %v", v.State)
		}
	})
}
