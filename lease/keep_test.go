package lease

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofrs/flock"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// keeping is a lease that Keep holds in fake time, on a machine that can sleep.
type keeping struct {
	*testing.T
	store  *Store
	lease  *Lease
	fault  atomic.Value // what fails: a func(step string) error
	began  time.Time
	asleep atomic.Int64 // for how long the machine has slept
	nap    atomic.Int64 // for how long it is to sleep as soon as somebody has looked at the boot-time clock
	owned  atomic.Int32 // how many renewals came as far as writing
	log    logged
	stop   context.CancelFunc
	done   chan error
}

// keep runs a test in fake time, in which a lease has just been claimed and Keep was started.
func keep(t *testing.T, test func(k *keeping)) {
	t.Helper()
	keepAfter(t, 0, test)
}

func keepAfter(t *testing.T, pause time.Duration, test func(k *keeping)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &keeping{T: t, store: store(t), began: time.Now(), done: make(chan error, 1)}
		k.store.Log = k.log.logger()
		k.store.sinceBoot = k.boot
		k.store.fault = func(step string) error {
			if step == "owned" {
				k.owned.Add(1)
			}
			if fails, ok := k.fault.Load().(func(string) error); ok {
				return fails(step)
			}
			return nil
		}
		var err error
		if k.lease, err = k.store.Claim(t.Context(), agent, sameOwner("block-1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
		k.run(k.lease)
		test(k)
	})
}

func (k *keeping) run(l *Lease) {
	ctx, stop := context.WithCancel(k.Context())
	k.stop = stop
	k.Cleanup(stop)
	go func() { k.done <- l.Keep(ctx) }()
}

// boot is a boot-time clock: it runs on while the machine sleeps, which package time's does not.
func (k *keeping) boot() time.Duration {
	now := time.Hour + time.Since(k.began) + time.Duration(k.asleep.Load())
	k.asleep.Add(k.nap.Swap(0))
	return now
}

// fails lets what happens at a step fail from now on.
func (k *keeping) fails(at func(step string) error) { k.fault.Store(at) }

// sleep lets the machine sleep.
func (k *keeping) sleep(d time.Duration) { k.asleep.Add(int64(d)) }

// another is a store of another process on the same machine.
func (k *keeping) another() *Store {
	return &Store{Dir: k.store.Dir, Table: tableOf(holderPID), sinceBoot: k.boot}
}

// wait passes fake time, until everybody waits again.
func (k *keeping) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// renewed is how long ago the record was renewed, by the boot-time clock.
func (k *keeping) renewed() time.Duration {
	k.Helper()
	return k.boot() - time.Duration(readLease(k, k.store).Ours.BeatBootMS)*time.Millisecond
}

// lostAfter waits for the loss to be told, and returns how long after the last good renewal that was. Nobody else
// could have taken the lease at that moment.
func (k *keeping) lostAfter() time.Duration {
	k.Helper()
	<-k.lease.Lost()
	age := k.lease.age()
	if info, err := k.another().Inspect(agent); err != nil || info.Verdict.Claimable.When == verdict.Now {
		k.Errorf("others may act before the loss is told: %v (%v)", info.Verdict.Sentence, err)
	}
	return age
}

// ended is the error with which Keep ended, which must match these sentinels.
func (k *keeping) ended(sentinels ...string) error {
	k.Helper()
	err := <-k.done
	if got := is(err); !slices.Equal(got, sentinels) {
		k.Errorf("Keep ended with %q, want %q: %v", got, sentinels, err)
	}
	return err
}

func (k *keeping) ends(sentinels ...string) {
	k.Helper()
	_ = k.ended(sentinels...)
}

func (k *keeping) held() {
	k.Helper()
	if isClosed(k.lease.Lost()) {
		k.Fatal("a loss was told")
	}
	select {
	case err := <-k.done:
		k.Fatal("Keep ended: ", err)
	default:
	}
}

func TestKeepRenewsForAnHour(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		for range 60 {
			k.wait(time.Minute)
			k.held()
			if info, err := k.another().Inspect(agent); err != nil || info.Verdict.State != verdict.Live {
				t.Fatalf("others see %v (%v)", info.Verdict.Sentence, err)
			}
			if _, err := k.another().Claim(t.Context(), agent, other("owner-b")); !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
		}
		if got := k.owned.Load(); got != 720 {
			t.Errorf("%d renewals in an hour", got)
		}
		if got := readCount(t, k.store); got != "1\n" {
			t.Errorf("the counter is %q", got)
		}
		k.stop()
		k.ends()
		if err := k.lease.Verify(t.Context()); err != nil {
			t.Errorf("the file does not stay: %v", err)
		}
		if got := k.log.lines(); len(got) != 0 {
			t.Errorf("logged %q", got)
		}
	})
}

func TestKeepEndsWhenReleased(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		k.wait(12 * sec)
		if err := k.lease.Release(); err != nil {
			t.Fatal(err)
		}
		k.ends()
		k.wait(time.Minute)
		if isClosed(k.lease.Lost()) {
			t.Error("giving up is no loss")
		}
		if err := k.lease.Keep(t.Context()); err != nil {
			t.Errorf("kept again: %v", err)
		}
		if _, err := os.Lstat(k.lease.Path()); err == nil {
			t.Error("the lease came back")
		}
	})
}

func TestReleaseDuringARenewalIsNoLoss(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		k.fails(func(step string) error {
			if step == "entered" {
				k.fails(func(string) error { return nil })
				// The release has begun, and its file is gone before this renewal looks.
				k.lease.stop()
				return os.Remove(k.lease.Path())
			}
			return nil
		})
		k.ends()
		if isClosed(k.lease.Lost()) {
			t.Error("giving up is no loss")
		}
	})
}

func TestEndDuringARenewalIsNoFailure(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		sits := flock.New(k.store.path(agent, sectionSuffix))
		if ok, err := sits.TryLock(); !ok || err != nil {
			t.Fatal(ok, err)
		}
		k.wait(7 * sec) // two of them in a renewal that waits
		k.stop()
		k.ends()
		_ = sits.Close()
		if got := k.log.lines(); len(got) != 0 || isClosed(k.lease.Lost()) {
			t.Errorf("logged %q", got)
		}
	})
}

func TestRenewalThatFailsIsTriedAgain(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		full := errors.New("no space left on device")
		k.fails(func(step string) error {
			if step == "owned" && k.owned.Load() <= 3 {
				return full
			}
			return nil
		})
		k.wait(5*sec + time.Millisecond)
		for i := range int32(3) {
			if got := k.owned.Load(); got != i+1 {
				t.Fatalf("%d tries, want %d", got, i+1)
			}
			k.wait(sec)
		}
		k.held()
		if got := k.renewed(); got > 2*time.Millisecond {
			t.Errorf("renewed %v ago", got)
		}
		k.wait(4900 * time.Millisecond)
		if got := k.owned.Load(); got != 4 {
			t.Errorf("tried again %d times although all is well", got-4)
		}
		k.wait(200 * time.Millisecond)
		if got := k.owned.Load(); got != 5 {
			t.Errorf("%d renewals", got)
		}
		if got := k.log.lines(); !slices.Equal(got, []string{
			`level=WARN msg="lease renewal failed" id=agent-1 failures=1`,
			`level=WARN msg="lease renewal failed" id=agent-1 failures=2`,
			`level=WARN msg="lease renewal failed" id=agent-1 failures=3`,
			`level=INFO msg="lease renewal recovered" id=agent-1 failures=3`,
		}) {
			t.Errorf("logged %q", got)
		}
	})
}

func TestRenewalThatKeepsFailingIsALoss(t *testing.T) {
	full := errors.New("no space left on device")
	for name, breaks := range map[string]func(k *keeping){
		"writing fails":     func(k *keeping) { k.fails(func(string) error { return full }) },
		"it is unreadable":  func(k *keeping) { put(k, k.store, leaseSuffix, []byte("{"), 0) },
		"it is no file now": func(k *keeping) { _ = os.Remove(k.lease.Path()); _ = os.Mkdir(k.lease.Path(), 0o700) },
		"somebody sits inside": func(k *keeping) {
			sits := flock.New(k.store.path(agent, sectionSuffix))
			if ok, err := sits.TryLock(); !ok || err != nil {
				k.Fatal(ok, err)
			}
			k.Cleanup(func() { _ = sits.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				k.wait(time.Minute) // in which all was well
				was := readLease(t, k.store)
				breaks(k)
				k.wait(10 * sec)
				k.held()
				if name == "it is unreadable" || name == "it is no file now" {
					// Nobody else can take it: what is missing is the record by which lostAfter judges.
					<-k.lease.Lost()
					if age := k.lease.age(); age <= 10*sec || age >= 12*sec {
						t.Errorf("told after %v", age)
					}
				} else if age := k.lostAfter(); age <= 10*sec || age >= 12*sec {
					t.Errorf("told after %v", age)
				} else if name == "writing fails" && age > 10*sec+10*time.Millisecond {
					t.Errorf("told only after %v", age)
				} else if now := readLease(t, k.store); now.RenewedAtMS != was.RenewedAtMS {
					t.Error("renewed")
				}
				err := <-k.done
				if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "not renewed for 1") {
					t.Errorf("Keep ended with %v", err)
				}
				if name == "writing fails" && !errors.Is(err, full) || name == "somebody sits inside" && !errors.Is(err, ErrBusy) {
					t.Errorf("the cause is not told: %v", err)
				}
				got := k.log.lines()
				tries := len(got) - 1 // whoever waits for the section does so in one try
				if last := got[tries]; last != `level=ERROR msg="lost lease" id=agent-1 epoch=1` || tries == 0 != (name == "somebody sits inside") {
					t.Errorf("logged %q", got)
				}
			})
		})
	}
}

func TestLossIsToldWhileTheSystemHangs(t *testing.T) {
	keep(t, func(k *keeping) {
		t := k.T
		k.fails(func(step string) error {
			if step == "owned" {
				time.Sleep(time.Minute) // a disk that does not answer
			}
			return nil
		})
		k.wait(10 * sec)
		k.held()
		if age := k.lostAfter(); age <= 11*sec || age >= 12*sec {
			t.Errorf("told after %v", age)
		}
		select {
		case err := <-k.done:
			t.Fatal("Keep did not wait for the system: ", err)
		default:
		}
		// The renewal succeeds in the end, which is too late for whoever has been told.
		if err := k.ended("lost"); !strings.Contains(err.Error(), "too late") {
			t.Errorf("Keep ended with %v", err)
		}
	})
}

func TestSystemThatHangsForAWhileIsNoLoss(t *testing.T) {
	for _, at := range []string{"entered", "owned"} {
		t.Run(at, func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				hung := false
				k.fails(func(step string) error {
					if step == at && !hung {
						hung = true
						time.Sleep(5 * sec)
					}
					return nil
				})
				k.wait(9 * sec)
				k.held()
				k.wait(sec + time.Millisecond)
				if got := k.renewed(); got > 2*time.Millisecond || !hung {
					t.Errorf("renewed %v ago", got)
				}
				k.wait(time.Minute)
				k.held()
			})
		})
	}
}

// TestWallClockThatIsSetIsNoLoss writes the stamps that a renewal by another wall clock would have left.
func TestWallClockThatIsSetIsNoLoss(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": 3 * time.Hour, "back": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				for range 5 {
					k.wait(5*sec + time.Millisecond)
					r := readLease(t, k.store)
					r.RenewedAtMS += ahead.Milliseconds()
					r.AcquiredAtMS += ahead.Milliseconds()
					put(t, k.store, leaseSuffix, r.Encode(), -ahead)
					k.wait(4 * sec)
					if info := look(t, k.another()); info.Verdict.State != verdict.Live {
						t.Errorf("others see %s", info.Verdict.Sentence)
					}
					refused(t, k.another(), other("owner-b"), "held")
					k.wait(sec)
					k.held()
					if got := verdict.Age(verdict.Milli(readLease(t, k.store).RenewedAtMS), time.Now()); got > sec {
						t.Errorf("renewed %v ago by the clock of now", got)
					}
				}
			})
		})
	}
}

func TestLossOfAnythingButTimeIsToldAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(k *keeping)
		owner   string
	}{
		"the file is gone":      {func(k *keeping) { _ = os.Remove(k.lease.Path()) }, ""},
		"the directory is gone": {func(k *keeping) { _ = os.RemoveAll(k.store.Dir) }, ""},
		"another claim": {func(k *keeping) {
			putLease(k, k.store, 0, func(r *record.Lease) { r.OwnerBootID = "owner-b" })
		}, "owner-b"},
		"the same owner claimed it anew": {func(k *keeping) {
			putLease(k, k.store, 0, func(r *record.Lease) { r.ClaimID = "claim-2" })
		}, "owner-a"},
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(k *keeping) {
				t := k.T
				k.wait(sec)
				tc.happens(k)
				k.wait(4*sec + time.Millisecond)
				if !isClosed(k.lease.Lost()) {
					t.Fatal("the loss was not told at the next renewal")
				}
				err := k.ended("lost")
				if e, ok := errors.AsType[*ConflictError](err); !ok || (e.Holder != nil) != (tc.owner != "") || e.Holder != nil && e.Holder.OwnerBootID != tc.owner {
					t.Errorf("Keep ended with %v", err)
				}
				if got := k.log.lines(); !slices.Equal(got, []string{`level=ERROR msg="lost lease" id=agent-1 epoch=1`}) {
					t.Errorf("logged %q", got)
				}
			})
		})
	}
}

func TestMachineSlept(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			k.wait(7 * sec)
			k.sleep(time.Hour)
			if info, err := k.another().Inspect(agent); err != nil || info.Verdict.State != verdict.Expired {
				t.Errorf("others see %v (%v)", info.Verdict.Sentence, err)
			}
			if err := k.lease.Verify(t.Context()); err != nil {
				t.Errorf("nobody took it: %v", err)
			}
			k.wait(3*sec + time.Millisecond)
			k.held()
			if got := k.renewed(); got > 2*time.Millisecond {
				t.Errorf("renewed %v ago", got)
			}
			k.wait(time.Minute)
			k.held()
		})
	})
	t.Run("and was overtaken", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			k.wait(7 * sec)
			k.sleep(time.Hour)
			b, err := k.another().Claim(t.Context(), agent, other("owner-b"))
			if err != nil || b.Epoch() != 2 {
				t.Fatalf("%+v (%v)", b, err)
			}
			k.wait(3*sec + time.Millisecond)
			if !isClosed(k.lease.Lost()) {
				t.Fatal("the loss was not told")
			}
			if e, ok := errors.AsType[*ConflictError](k.ended("lost")); !ok || e.Holder.OwnerBootID != "owner-b" {
				t.Errorf("lost to %+v", e)
			}
			mine(t, b)
		})
	})
	t.Run("and cannot renew", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			sits := flock.New(k.store.path(agent, sectionSuffix))
			if ok, err := sits.TryLock(); !ok || err != nil {
				t.Fatal(ok, err)
			}
			k.wait(4 * sec)
			k.sleep(time.Hour)
			k.wait(sec)
			k.held()
			k.wait(1100 * time.Millisecond)
			if !isClosed(k.lease.Lost()) {
				t.Error("after one try of a second it is lost")
			}
			k.ends("busy", "deadline", "lost")
			_ = sits.Close()
		})
	})
	t.Run("in the middle of a renewal", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			k.fails(func(step string) error {
				if step == "owned" && k.owned.Load() == 1 {
					k.nap.Store(int64(time.Hour)) // after the stamp, before the write
				}
				return nil
			})
			k.wait(5*sec + time.Millisecond)
			k.held()
			if got := k.owned.Load(); got != 2 {
				t.Errorf("%d renewals, although the first was over when it was written", got)
			}
			if got := k.renewed(); got > 2*time.Millisecond {
				t.Errorf("renewed %v ago", got)
			}
			k.wait(time.Minute)
			k.held()
			if got := k.owned.Load(); got != 14 {
				t.Errorf("%d renewals", got)
			}
		})
	})
	t.Run("and again and again", func(t *testing.T) {
		keep(t, func(k *keeping) {
			for range 20 {
				k.wait(5 * sec)
				k.sleep(20 * sec)
				k.wait(5*sec + time.Millisecond)
				k.held()
				if got := k.renewed(); got > 5*sec {
					k.Errorf("renewed %v ago", got)
				}
			}
		})
	})
	t.Run("for less than the TTL", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			k.wait(4 * sec)
			k.sleep(8 * sec)
			k.wait(sec + time.Millisecond)
			k.held()
			if got := k.renewed(); got > 2*time.Millisecond {
				t.Errorf("renewed %v ago", got)
			}
		})
	})
}

func TestKeepBeginsWhenTheNextRenewalIsDue(t *testing.T) {
	for name, tc := range map[string]struct {
		pause time.Duration
		first time.Duration // after Keep was started
	}{
		"at once":                     {0, 5 * sec},
		"after a while":               {3 * sec, 2 * sec},
		"when one is overdue":         {8 * sec, 0},
		"when it has run out already": {20 * sec, 0},
	} {
		t.Run(name, func(t *testing.T) {
			keepAfter(t, tc.pause, func(k *keeping) {
				t := k.T
				if tc.first > 0 {
					k.wait(tc.first - time.Millisecond)
					if got := k.owned.Load(); got != 0 {
						t.Errorf("%d renewals too early", got)
					}
				}
				k.wait(2 * time.Millisecond)
				if got := k.owned.Load(); got != 1 {
					t.Errorf("%d renewals", got)
				}
				k.held()
			})
		})
	}
	t.Run("at once, when nothing is known of the last one", func(t *testing.T) {
		keep(t, func(k *keeping) {
			t := k.T
			k.stop()
			k.ends()
			again, err := k.store.Handle(agent, k.lease.ClaimID())
			if err != nil {
				t.Fatal(err)
			}
			k.wait(14 * sec)
			k.run(again)
			k.wait(time.Millisecond)
			if got := k.renewed(); got > 2*time.Millisecond {
				t.Errorf("renewed %v ago", got)
			}
			k.wait(time.Minute)
			k.held()
			if isClosed(again.Lost()) {
				t.Error("lost")
			}
		})
	})
}
