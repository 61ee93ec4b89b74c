package fslock

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

// bootClock is the boot-time clock of a bubble: it goes with fake time, and on through a suspend.
type bootClock struct {
	began time.Time
	slept atomic.Int64
}

// bootedFor is the age of the machine when a bubble begins: the stamp grows by a digit within the first beats.
const bootedFor = 990 * time.Second

func (c *bootClock) now() time.Duration {
	return bootedFor + time.Since(c.began) + time.Duration(c.slept.Load())
}

func (c *bootClock) suspend(d time.Duration) { c.slept.Add(int64(d)) }

// timed is a process of the made-up machine that locks in fake time. Its waiters only poll: a real watcher stops it.
func timed(pid int, c *bootClock) *Locker {
	return &Locker{Table: machine(func(m *proctest.Machine) { m.PID = pid }), sinceBoot: c.now, unwatched: true}
}

// inFakeTime runs a test in fake time, in an empty directory of its own.
func inFakeTime(t *testing.T, test func(t *testing.T, c *bootClock, path string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, &bootClock{began: time.Now()}, filepath.Join(t.TempDir(), "a.lock"))
	})
}

func take(t *testing.T, l *Locker, path string) *Lock {
	t.Helper()
	lock, err := l.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func giveUp(t *testing.T, lock *Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func lockAt(t *testing.T, path string) record.Lock {
	t.Helper()
	_, r, err := record.ReadLock(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func contentOf(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// matches checks an error against each of the sentinels.
func wantErrors(t *testing.T, what string, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: %v, want %v", what, err, w)
		}
	}
}

// unwritten reports whether both are one file that nobody wrote between them.
func unwritten(before, after fs.FileInfo) bool {
	return os.SameFile(before, after) && before.ModTime().Equal(after.ModTime()) && before.Size() == after.Size()
}

func isLost(lock *Lock) bool { return isClosed(lock.Lost()) }

func TestHourOfHeartbeats(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		lock := take(t, timed(4242, c), path)
		first, was := lockAt(t, path), contentOf(t, path)
		inode, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(beatInterval / 2)
		for i := range time.Duration(3600 / 5) {
			if err := lock.Verify(); err != nil || isLost(lock) {
				t.Fatalf("after %d beats: %v", i, err)
			}
			now, data := lockAt(t, path), contentOf(t, path)
			beat := i * beatInterval
			stamp := uint64(c.began.Add(beat).UnixMilli())
			if now.HeartbeatAtMS != stamp || now.Ours.BeatBootMS != (bootedFor+beat).Milliseconds() {
				t.Fatalf("after %d beats: heartbeat %d, by the boot-time clock %d", i, now.HeartbeatAtMS, now.Ours.BeatBootMS)
			}
			if !now.SameOwner(&first) || now.CreatedAtMS != first.CreatedAtMS || now.Ours.PIDNS != first.Ours.PIDNS {
				t.Fatalf("after %d beats another owner: %s", i, data)
			}
			if len(data) != len(was) || !bytes.HasSuffix(data, []byte(" \n")) {
				t.Fatalf("after %d beats %d bytes, were %d: %q", i, len(data), len(was), data)
			}
			if st, err := os.Stat(path); err != nil || !os.SameFile(st, inode) {
				t.Fatalf("after %d beats another file (%v)", i, err)
			}
			time.Sleep(beatInterval)
		}
		giveUp(t, lock)
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestReleaseEndsTheHeartbeatBeforeTheFileGoes(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		beats, releases := 0, 0
		var lock *Lock
		l.fault = func(step, _ string) error {
			switch step {
			case "beating":
				beats++
			case "releasing":
				releases++
				was := beats
				if !lock.ended {
					t.Error("the heartbeat goes on")
				}
				time.Sleep(10 * beatInterval)
				if beats != was {
					t.Errorf("%d beats after the heartbeat's end", beats-was)
				}
			}
			return nil
		}
		lock = take(t, l, path)
		time.Sleep(beatInterval + time.Second)
		giveUp(t, lock)
		giveUp(t, lock)
		if beats != 1 || releases != 1 {
			t.Errorf("%d beats, %d releases", beats, releases)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is still there: %v", err)
		}
		wantErrors(t, "verify after it", lock.Verify(), ErrLost)
	})
}

func TestManyReleaseAtOnce(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		var releases atomic.Int32
		l.fault = func(step, _ string) error {
			if step == "releasing" {
				releases.Add(1)
			}
			return nil
		}
		lock := take(t, l, path)
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := releases.Load(); n != 1 {
			t.Errorf("released %d times", n)
		}
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
		// What somebody else has by now is not touched by one more.
		other := take(t, timed(5151, c), path)
		giveUp(t, lock)
		if err := other.Verify(); err != nil {
			t.Error(err)
		}
		giveUp(t, other)
	})
}

func TestFailedReleaseCanBeTriedAgain(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		fail := true
		l.fault = func(step, _ string) error {
			if step == "releasing" && fail {
				return syscall.EIO
			}
			return nil
		}
		lock := take(t, l, path)
		err := lock.Release()
		wantErrors(t, "release", err, syscall.EIO)
		if e, ok := errors.AsType[*IOError](err); !ok || e.Op != "release" || e.Path != path {
			t.Errorf("release: %#v", err)
		}
		fail = false
		giveUp(t, lock)
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestReleaseWhoseGuardIsBusyGoesWithoutIt(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		lock := take(t, l, path)
		g, err := l.enterGuard(t.Context(), "test", path, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer g.leave()
		began := time.Now()
		giveUp(t, lock)
		if d := time.Since(began); d < guardLimit || d > guardLimit+time.Second {
			t.Errorf("released after %v", d)
		}
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

// Whoever calls Release once has done so, however long the system keeps a beat.
func TestReleaseDuringABeatThatHangsComesAfterIt(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			l := timed(4242, c)
			hangs := make(chan struct{})
			l.fault = func(step, _ string) error {
				if step == "beating" {
					<-hangs
				}
				return nil
			}
			lock := take(t, l, path)
			time.Sleep(beatInterval + time.Second)
			began := time.Now()
			if err := lock.Release(); err == nil || time.Since(began) != joinLimit {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			var other *Lock
			if lost {
				other = taken(t, c, path)
			}
			close(hangs)
			synctest.Wait()
			if lost {
				if err := other.Verify(); err != nil {
					t.Error(err)
				}
				giveUp(t, other)
			}
			if got := names(t, filepath.Dir(path)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
			if _, err := lock.file.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("its file is open: %v", err)
			}
			giveUp(t, lock)
			time.Sleep(time.Minute) // no beat is left
		})
	}
}

// taken lets somebody else have the lock, as a contender has it that saw the holder die.
func taken(t *testing.T, c *bootClock, path string) *Lock {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return take(t, timed(5151, c), path)
}

func TestReleaseOfALostLockTouchesNothing(t *testing.T) {
	for what, known := range map[string]bool{"the loss is known": true, "the loss is not known": false} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				lock := take(t, timed(4242, c), path)
				other := taken(t, c, path)
				was := contentOf(t, path)
				if known {
					wantErrors(t, "verify", lock.Verify(), ErrLost)
				}
				for range 2 {
					giveUp(t, lock)
				}
				if !bytes.Equal(contentOf(t, path), was) {
					t.Error("the new owner's file was written")
				}
				if err := other.Verify(); err != nil {
					t.Error(err)
				}
				if err := lock.Verify(); !errors.Is(err, ErrLost) {
					t.Errorf("verify: %v", err)
				}
				if known && !isLost(lock) {
					t.Error("the loss is not told")
				}
				giveUp(t, other)
			})
		})
	}
}

func TestBeatThatComesAfterATakeOverReachesNobodysFile(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		l := timed(4242, c)
		var other *Lock
		l.fault = func(step, _ string) error {
			if step == "beating" && other == nil {
				other = taken(t, c, path) // while it was stopped here
			}
			return nil
		}
		lock := take(t, l, path)
		time.Sleep(beatInterval + time.Second)
		synctest.Wait()
		if other == nil {
			t.Fatal("there was no beat")
		}
		got := lockAt(t, path)
		if got.PID != 5151 || got.WriterEpoch != other.WriterEpoch() || got.HeartbeatAtMS != got.CreatedAtMS {
			t.Errorf("the new owner's file: %s", contentOf(t, path))
		}
		wantErrors(t, "verify of the old", lock.Verify(), ErrLost)
		if err := other.Verify(); err != nil {
			t.Errorf("verify of the new: %v", err)
		}
		giveUp(t, lock)
		time.Sleep(2 * beatInterval)
		if err := other.Verify(); err != nil {
			t.Errorf("verify of the new: %v", err)
		}
		giveUp(t, other)
	})
}

// inPlaceOf are things that take the place of a lock file, after which it is lost.
func inPlaceOf(t *testing.T) map[string]func(path string) error {
	t.Helper()
	put := func(f func(path string) error) func(string) error {
		return func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return f(path)
		}
	}
	theirs := lockRecord(0).Encode()
	return map[string]func(path string) error{
		"nothing":           os.Remove,
		"another's file":    put(func(path string) error { return os.WriteFile(path, theirs, 0o600) }),
		"a directory":       put(func(path string) error { return os.Mkdir(path, 0o700) }),
		"a link to nothing": put(func(path string) error { return os.Symlink("nothing", path) }),
		"a link to its own record": func(path string) error {
			return errors.Join(os.Rename(path, path+".aside"), os.Symlink(path+".aside", path))
		},
		"a file without end": put(func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30))
		}),
	}
}

func TestFileThatIsGoneOrAnothersIsALoss(t *testing.T) {
	for what, replace := range inPlaceOf(t) {
		for _, by := range []string{"verify", "the heartbeat"} {
			t.Run(by+" finds "+what, func(t *testing.T) {
				inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
					lock := take(t, timed(4242, c), path)
					time.Sleep(time.Second)
					if err := replace(path); err != nil {
						t.Fatal(err)
					}
					if isLost(lock) {
						t.Fatal("lost before anybody looked")
					}
					if by == "verify" {
						wantErrors(t, "verify", lock.Verify(), ErrLost)
					} else {
						time.Sleep(beatInterval)
						synctest.Wait()
					}
					if !isLost(lock) {
						t.Error("the loss is not told")
					}
					// It is one for good, whatever comes into its place later.
					left, _ := os.Lstat(path)
					wantErrors(t, "verify later", lock.Verify(), ErrLost)
					time.Sleep(2 * beatInterval)
					giveUp(t, lock)
					now, _ := os.Lstat(path)
					if (left == nil) != (now == nil) || left != nil && !unwritten(left, now) {
						t.Errorf("what is in its place was touched: %v, was %v", now, left)
					}
				})
			})
		}
	}
}

func TestCopyOfTheFileIsStillOurs(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		lock := take(t, timed(4242, c), path)
		time.Sleep(time.Second)
		if err := replaceBy(path, contentOf(t, path)); err != nil {
			t.Fatal(err)
		}
		if err := lock.Verify(); err != nil {
			t.Errorf("verify: %v", err)
		}
		for beat := range uint64(3) {
			if err := replaceBy(path, contentOf(t, path)); err != nil {
				t.Fatal(err)
			}
			inode, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(beatInterval)
			if now := lockAt(t, path); now.HeartbeatAtMS != now.CreatedAtMS+5000*(beat+1) {
				t.Errorf("beat %d did not reach the copy: %s", beat, contentOf(t, path))
			}
			if st, err := os.Stat(path); err != nil || !os.SameFile(st, inode) {
				t.Errorf("beat %d made another file (%v)", beat, err)
			}
			if err := lock.Verify(); err != nil || isLost(lock) {
				t.Errorf("verify: %v", err)
			}
		}
		giveUp(t, lock)
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestTornFileInItsPlaceIsNoLossYet(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		lock := take(t, timed(4242, c), path)
		whole := contentOf(t, path)
		time.Sleep(time.Second)
		if err := replaceBy(path, whole[:40]); err != nil {
			t.Fatal(err)
		}
		wantErrors(t, "verify", lock.Verify(), ErrUnreadable)
		time.Sleep(3 * beatInterval)
		wantErrors(t, "verify after three beats", lock.Verify(), ErrUnreadable)
		if isLost(lock) {
			t.Fatal("it counts as lost")
		}
		if got := contentOf(t, path); !bytes.Equal(got, whole[:40]) {
			t.Errorf("the file in its place was written: %q", got)
		}
		wantErrors(t, "release", lock.Release(), ErrUnreadable)
		// The restore comes to its end.
		if err := replaceBy(path, whole); err != nil {
			t.Fatal(err)
		}
		if err := lock.Verify(); err != nil {
			t.Errorf("verify: %v", err)
		}
		giveUp(t, lock)
		if got := names(t, filepath.Dir(path)); len(got) != 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

func TestWhateverStandsInOurOwnFileIsWrittenAnew(t *testing.T) {
	for what, spoil := range map[string]func(whole []byte) []byte{
		"nothing":            func([]byte) []byte { return nil },
		"half of it":         func(whole []byte) []byte { return whole[:len(whole)/2] },
		"as much garbage":    func(whole []byte) []byte { return bytes.Repeat([]byte("x"), len(whole)) },
		"more behind it":     func(whole []byte) []byte { return append(bytes.Clone(whole), whole...) },
		"NUL behind it":      func(whole []byte) []byte { return append(bytes.Clone(whole), 0) },
		"more than is read":  func(whole []byte) []byte { return slices.Concat(whole, make([]byte, record.MaxSize)) },
		"another's record":   func([]byte) []byte { return lockRecord(0).Encode() },
		"another's, as long": func(whole []byte) []byte { return lockRecord(0).EncodePadded(len(whole)) },
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				lock := take(t, timed(5151, c), path)
				whole := contentOf(t, path)
				time.Sleep(time.Second)
				if err := rewrite(path, spoil(whole)); err != nil {
					t.Fatal(err)
				}
				wantErrors(t, "verify", lock.Verify(), ErrStale)
				time.Sleep(beatInterval)
				synctest.Wait()
				if err := lock.Verify(); err != nil || isLost(lock) {
					t.Errorf("after a beat: %v", err)
				}
				if now := lockAt(t, path); now.WriterEpoch != lock.WriterEpoch() || len(contentOf(t, path)) != len(whole) {
					t.Errorf("after a beat: %q", contentOf(t, path))
				}
				giveUp(t, lock)
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

func TestSuspendMakesItStaleAndTheNextBeatRevivesIt(t *testing.T) {
	for _, tc := range []struct {
		slept time.Duration
		stale bool
	}{{69 * time.Second, false}, {70 * time.Second, true}, {80 * time.Second, true}, {24 * time.Hour, true}} {
		t.Run(tc.slept.String(), func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				lock := take(t, timed(4242, c), path)
				c.suspend(tc.slept)
				if err := lock.Verify(); tc.stale != errors.Is(err, ErrStale) || !tc.stale && err != nil {
					t.Errorf("verify: %v", err)
				}
				if isLost(lock) {
					t.Error("it counts as lost")
				}
				time.Sleep(beatInterval)
				synctest.Wait()
				if err := lock.Verify(); err != nil {
					t.Errorf("after a beat: %v", err)
				}
				giveUp(t, lock)
			})
		})
	}
}

func TestBeatsThatFailAreNoLossButToldInTime(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		t.Run(cause.Error(), func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				l := timed(4242, c)
				var fail atomic.Bool
				l.fault = func(step, _ string) error {
					if step == "beating" && fail.Load() {
						return cause
					}
					return nil
				}
				lock := take(t, l, path)
				time.Sleep(beatInterval)
				synctest.Wait()
				fail.Store(true)
				time.Sleep(staleAfter - time.Nanosecond)
				if err := lock.Verify(); err != nil {
					t.Errorf("directly before: %v", err)
				}
				time.Sleep(time.Nanosecond)
				wantErrors(t, "70 s after the last good beat", lock.Verify(), ErrStale)
				time.Sleep(time.Hour)
				wantErrors(t, "an hour later", lock.Verify(), ErrStale)
				if isLost(lock) {
					t.Error("it counts as lost")
				}
				fail.Store(false)
				time.Sleep(beatInterval)
				synctest.Wait()
				if err := lock.Verify(); err != nil {
					t.Errorf("when the beats succeed again: %v", err)
				}
				giveUp(t, lock)
			})
		})
	}
}
