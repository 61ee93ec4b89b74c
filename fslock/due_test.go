package fslock

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestExpiredLockIsWatchedBeforeItIsTaken(t *testing.T) {
	lay := func(t *testing.T, path string) {
		t.Helper()
		putLock(t, filepath.Dir(path), filepath.Base(path), lockRecord(76*time.Second, remote))
	}
	left := func(t *testing.T, l *Locker, path string) time.Duration {
		t.Helper()
		lock, err := l.TryAcquire(path)
		wantErrors(t, "try", err, ErrHeld)
		e, ok := errors.AsType[*ConflictError](err)
		if !ok || e.Verdict.State != verdict.Expired || e.Holder == nil || !strings.Contains(e.Error(), "watched unchanged") {
			t.Fatalf("try: %v, %v", lock, err)
		}
		return e.Left
	}
	t.Run("by tries", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			lay(t, path)
			l := timed(5151, c)
			for seen := range watchFor / time.Second {
				if d := left(t, l, path); d != watchFor-seen*time.Second {
					t.Fatalf("watched for %d s: %v left", seen, d)
				}
				time.Sleep(time.Second)
			}
			if d := left(t, timed(4242, c), path); d != watchFor {
				t.Errorf("another Locker: %v left", d)
			}
			giveUp(t, take(t, l, path))
		})
	})
	t.Run("with a gap", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			lay(t, path)
			l := timed(5151, c)
			for range 8 {
				left(t, l, path)
				time.Sleep(2 * time.Second)
			}
			time.Sleep(time.Millisecond)
			if d := left(t, l, path); d != watchFor {
				t.Errorf("after a gap: %v left", d)
			}
		})
	})
	t.Run("by looks", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			lay(t, path)
			l := timed(5151, c)
			for began := time.Now(); time.Since(began) < watchFor; time.Sleep(time.Second) {
				l.Inspect(path)
			}
			giveUp(t, take(t, l, path))
		})
	})
	t.Run("by a waiter", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			lay(t, path)
			w := acquiring(t.Context(), timed(5151, c), path)
			lock := w.got(t)
			if w.took < watchFor || w.took > watchFor+time.Second {
				t.Errorf("taken after %v", w.took)
			}
			giveUp(t, lock)
		})
	})
	t.Run("it beats meanwhile", func(t *testing.T) {
		inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
			lay(t, path)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			w := acquiring(ctx, timed(5151, c), path)
			time.Sleep(watchFor - time.Second)
			for range 20 {
				putLock(t, filepath.Dir(path), "a.lock", lockRecord(0, remote))
				time.Sleep(beatInterval)
			}
			<-w.done
			wantErrors(t, "acquire", w.err, ErrHeld, context.DeadlineExceeded)
			if r := lockAt(t, path); r.PID != 4242 {
				t.Errorf("it was taken over: %s", contentOf(t, path))
			}
		})
	})
}

func TestDeadHolderIsNotWaitedFor(t *testing.T) {
	inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
		for range 2 {
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(0, dead))
			l := timed(5151, c)
			w := acquiring(t.Context(), l, path)
			lock := w.got(t)
			if w.took > 0 {
				t.Errorf("it took %v", w.took)
			}
			giveUp(t, lock)
			if got := names(t, filepath.Dir(path)); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		}
	})
}

func TestTornLockHasOneWinnerOfMany(t *testing.T) {
	for what, data := range map[string][]byte{
		"empty": nil, "all NUL": make([]byte, 300), "half a record": lockRecord(0).Encode()[:50],
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				put(t, path, data, 0)
				_, err := timed(4242, c).TryAcquire(path)
				wantErrors(t, "try", err, ErrHeld)
				if !strings.Contains(err.Error(), "onoured for 15s more") {
					t.Errorf("try: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				var ws []*waiter
				for range 8 {
					ws = append(ws, acquiring(ctx, timed(5151, c), path))
				}
				var winner *waiter
				for _, w := range ws {
					<-w.done
					switch {
					case w.err == nil && winner == nil:
						winner = w
					case w.err == nil:
						t.Error("two have it")
					default:
						wantErrors(t, "a loser", w.err, ErrHeld)
					}
				}
				if winner == nil {
					t.Fatal("nobody has it")
				}
				if winner.took < verdict.TornAfter || winner.took > verdict.TornAfter+2*time.Second {
					t.Errorf("taken after %v", winner.took)
				}
				giveUp(t, winner.lock)
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}

func TestWhatIsNeverTaken(t *testing.T) {
	for what, lay := range map[string]func(t *testing.T, path string, m *proctest.Machine){
		"half of a Cargo.lock": func(t *testing.T, path string, _ *proctest.Machine) {
			t.Helper()
			put(t, path, []byte("# This file is automatically @gen"), time.Hour)
		},
		"a record with something behind it": func(t *testing.T, path string, _ *proctest.Machine) {
			t.Helper()
			put(t, path, append(lockRecord(time.Hour, dead).Encode(), 0), time.Hour)
		},
		"torn, and somebody has it open for writing": func(t *testing.T, path string, m *proctest.Machine) {
			t.Helper()
			put(t, path, nil, time.Hour)
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			dev, ino, ok := record.Inode(st)
			if !ok {
				t.Skip("files have no numbers here")
			}
			m.Procs[0].Writes = []proctest.File{{Dev: dev, Ino: ino}}
		},
		"late": func(t *testing.T, path string, _ *proctest.Machine) {
			t.Helper()
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(24*time.Hour))
		},
		"stopped": func(t *testing.T, path string, m *proctest.Machine) {
			t.Helper()
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(24*time.Hour))
			m.Procs[0].Condition = proc.Stopped
		},
		"late, under another host name": func(t *testing.T, path string, _ *proctest.Machine) {
			t.Helper()
			putLock(t, filepath.Dir(path), "a.lock", lockRecord(24*time.Hour, func(r *record.Lock) { r.Hostname = "old-name" }))
		},
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				l := timed(5151, c)
				l.Table = machine(func(m *proctest.Machine) {
					m.PID = 5151
					lay(t, path, m)
				})
				was := contentOf(t, path)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				lock, err := l.Acquire(ctx, path)
				wantErrors(t, "acquire", err, ErrHeld, context.DeadlineExceeded)
				if lock != nil || !bytes.Equal(contentOf(t, path), was) {
					t.Error("it was taken")
				}
				_, err = l.TryAcquire(path)
				wantErrors(t, "try", err, ErrHeld)
				if got := names(t, filepath.Dir(path)); len(got) != 1 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}
