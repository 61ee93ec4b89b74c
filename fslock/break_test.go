package fslock

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

// byHand is a removal that is logged to a file of its own.
func byHand(t *testing.T, force bool) Removal {
	t.Helper()
	r := Removal{Log: &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}}
	if force {
		r.Force, r.Reason = true, "the test wants it"
	}
	return r
}

// logged are the entries of an order's log.
func logged(t *testing.T, r Removal) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	for e, err := range r.Log.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// untouched checks that a refusal left a file as it was, and nothing beside it or in the log.
func untouched(t *testing.T, what, path string, before []byte, r Removal) {
	t.Helper()
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("%s: %q is %q now (%v)", what, before, now, err)
	}
	if n := len(logged(t, r)); n != 0 {
		t.Errorf("%s: %d audit entries", what, n)
	}
	for name := range strings.FieldsSeq(inDir(t, filepath.Dir(path))) {
		if name != filepath.Base(path) {
			t.Errorf("%s: %s is there", what, name)
		}
	}
}

func TestBreakRemovesWhatAnyContenderTakes(t *testing.T) {
	for what, path := range stale(t, t.TempDir()) {
		if what == "expired" {
			continue // it is watched first
		}
		before, _ := os.ReadFile(path)
		l, _ := remover(nil)
		r := byHand(t, false)
		info := l.Inspect(path)
		if err := l.Break(t.Context(), info, r); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", what)
		}
		entries := logged(t, r)
		if len(entries) != 1 || entries[0].Action != audit.ActionBreak || entries[0].Kind != "lock" ||
			entries[0].Path != audit.Canonical(path) || !bytes.Equal(entries[0].Before, before) {
			t.Fatalf("%s: logged %+v", what, entries)
		}
		if what == "dead" && entries[0].Nonce != "4242-1" {
			t.Errorf("nonce %q", entries[0].Nonce)
		}
		if err := l.Break(t.Context(), info, r); !errors.Is(err, ErrChanged) || len(logged(t, r)) != 1 {
			t.Errorf("%s, once more: %v", what, err)
		}
	}
}

func TestBreakOfWhatNoContenderTakesWantsForceAndReason(t *testing.T) {
	for what, put := range map[string]func(dir string) string{
		"live":      func(dir string) string { return putLock(t, dir, "x.lock", lockRecord(time.Second)) },
		"late":      func(dir string) string { return putLock(t, dir, "x.lock", lockRecord(time.Hour)) },
		"remote":    func(dir string) string { return putLock(t, dir, "x.lock", expired(70*time.Second)) },
		"young":     func(dir string) string { return put(t, filepath.Join(dir, "x.lock"), nil, time.Second) },
		"no record": func(dir string) string { return put(t, filepath.Join(dir, "x.lock"), []byte("# made by\n"), time.Hour) },
	} {
		path := put(t.TempDir())
		before, _ := os.ReadFile(path)
		l, _ := remover(nil)
		info := l.Inspect(path)
		r := byHand(t, false)
		err := l.Break(t.Context(), info, r)
		e, ok := errors.AsType[*ConflictError](err)
		if !ok || !errors.Is(err, ErrNotYet) || e.Verdict.State != info.Verdict.State || e.Path != path {
			t.Errorf("%s: %v", what, err)
		}
		r.Force = true
		for _, r.Reason = range []string{"", " \t\n"} {
			if err := l.Break(t.Context(), info, r); !errors.Is(err, ErrNoReason) {
				t.Errorf("%s: %v", what, err)
			}
		}
		r.Reason = "it is in the way"
		l.ReadOnly = true
		if err := l.Break(t.Context(), info, r); !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
		untouched(t, what, path, before, r)
		l.ReadOnly = false
		if err := l.Break(t.Context(), info, r); err != nil {
			t.Errorf("%s, by force: %v", what, err)
		}
		if entries := logged(t, r); len(entries) != 1 || entries[0].Reason != r.Reason || !bytes.Equal(entries[0].Before, before) {
			t.Errorf("%s: logged %+v", what, entries)
		}
		if inDir(t, filepath.Dir(path)) != "" {
			t.Errorf("%s: left %s", what, inDir(t, filepath.Dir(path)))
		}
	}
}

func TestBreakIsBoundToWhatWasShown(t *testing.T) {
	other := func(r *record.Lock) { r.WriterEpoch = "4242-2" }
	for what, tc := range map[string]struct{ shown, now []byte }{
		"another owner":        {lockRecord(0, dead).Encode(), lockRecord(0, dead, other).Encode()},
		"torn where a record":  {lockRecord(0, dead).Encode(), nil},
		"a record where torn":  {nil, lockRecord(0, dead).Encode()},
		"other bytes":          {[]byte("{"), []byte(`{"`)},
		"a file that was free": {[]byte("free"), lockRecord(0, dead).Encode()},
		"nothing any more":     {lockRecord(0, dead).Encode(), []byte("free")},
		"nothing, as before":   {[]byte("free"), []byte("free")},
	} {
		for _, force := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "cache.lock")
			l, _ := remover(nil)
			if string(tc.shown) != "free" {
				put(t, path, tc.shown, time.Hour)
			}
			info := l.Inspect(path)
			_ = os.Remove(path)
			if string(tc.now) != "free" {
				put(t, path, tc.now, time.Hour)
			}
			r := byHand(t, force)
			if err := l.Break(t.Context(), info, r); !errors.Is(err, ErrChanged) {
				t.Errorf("%s: %v", what, err)
			}
			if string(tc.now) != "free" {
				untouched(t, what, path, tc.now, r)
			}
		}
	}
	l, _ := remover(nil)
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(0, dead))
	if err := l.Break(t.Context(), Info{Path: path}, byHand(t, false)); !errors.Is(err, ErrChanged) {
		t.Errorf("what nobody looked at: %v", err)
	}
}

func TestWhatIsNotReadIsNeverBroken(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"a link":      func(p string) error { return os.Symlink("nowhere", p) },
		"too large":   func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte(" "), record.MaxSize+1), 0o600) },
	} {
		dir := t.TempDir()
		lock, token, temp := filepath.Join(dir, "cache.lock"), filepath.Join(dir, ".cache.lock.reclaim"), filepath.Join(dir, ".cache.lock.tmp.1.2.3")
		l, _ := remover(nil)
		for _, path := range []string{lock, token, temp} {
			if err := make(path); err != nil {
				skip(t, err)
			}
		}
		r := byHand(t, true)
		if err := l.Break(t.Context(), l.Inspect(lock), r); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
		if err := l.RemoveToken(t.Context(), l.InspectToken(token), r); !errors.Is(err, ErrUnreadable) {
			t.Errorf("token, %s: %v", what, err)
		}
		if err := l.RemoveTemp(t.Context(), l.InspectTemp(temp), r); !errors.Is(err, ErrUnreadable) {
			t.Errorf("temp, %s: %v", what, err)
		}
		if got := inDir(t, dir); got != ".cache.lock.reclaim .cache.lock.tmp.1.2.3 cache.lock" || len(logged(t, r)) != 0 {
			t.Errorf("%s: left %s", what, got)
		}
	}
}

// What happens between any two steps of a break is seen; the audit log may then tell of what was not done.
func TestBreakSeesWhatHappensBetweenAnyTwoSteps(t *testing.T) {
	newOwner := lockRecord(time.Second, func(r *record.Lock) { r.WriterEpoch = "4242-9" }).Encode()
	for _, step := range []string{"guarded", "tokened", "reread", "auditing", "audited"} {
		for _, force := range []bool{false, true} {
			path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
			l, _ := remover(func(s, _ string) error {
				if s == step {
					return replaceBy(path, newOwner)
				}
				return nil
			})
			if err := l.Break(t.Context(), l.Inspect(path), byHand(t, force)); !errors.Is(err, ErrChanged) {
				t.Errorf("%s, force %v: %v", step, force, err)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, newOwner) || inDir(t, filepath.Dir(path)) != "cache.lock" {
				t.Errorf("%s: left %q in %s", step, got, inDir(t, filepath.Dir(path)))
			}
		}
	}
}

// A dead holder's lock that a contender has taken, and which lives now, was not what the person agreed to.
func TestBreakWithoutForceLeavesAHolderThatLivesAfterAll(t *testing.T) {
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Second, dead))
	world := proctest.NewWorld(proctest.Machine{Host: "here", BootID: "boot", PIDNS: 1, Initial: true})
	l := &Locker{Table: world.Table(), fault: func(step, _ string) error {
		if step == "tokened" {
			world.Change(func(m *proctest.Machine) { m.Procs = append(m.Procs, proctest.Proc{PID: 999_999, Start: 777}) })
		}
		return nil
	}}
	r := byHand(t, false)
	if err := l.Break(t.Context(), l.Inspect(path), r); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
	if len(logged(t, r)) != 0 {
		t.Error("it was logged")
	}
}

func TestForcedBreakOfAHolderThatBeatsGoesRoundAgain(t *testing.T) {
	for beats, ok := range map[int]bool{1: true, 3: true, 4: false} {
		path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Second))
		left := beats
		l, _ := remover(nil)
		l.fault = func(step, _ string) error {
			if step != "audited" || left == 0 {
				return nil
			}
			left--
			return rewrite(path, lockRecord(0, func(r *record.Lock) {
				old, err := os.ReadFile(path)
				was, derr := record.DecodeLock(path, old)
				if err != nil || derr != nil {
					t.Error(err, derr)
				}
				*r = was
				r.HeartbeatAtMS++
			}).Encode())
		}
		r := byHand(t, true)
		err := l.Break(t.Context(), l.Inspect(path), r)
		if ok && err != nil || !ok && !errors.Is(err, ErrChanged) {
			t.Errorf("%d beats: %v", beats, err)
		}
		if _, serr := os.Lstat(path); ok != errors.Is(serr, fs.ErrNotExist) {
			t.Errorf("%d beats: %v", beats, serr)
		}
		told, failed := 0, 0
		for _, e := range logged(t, r) {
			if e.Action == audit.ActionFailed {
				failed++
			} else {
				told++
			}
		}
		if told != min(beats+1, breakRounds) || failed != min(beats, breakRounds) {
			t.Errorf("%d beats: %d audit entries, of which %d failed", beats, told, failed)
		}
	}
}

func TestOneOfTwoPeopleBreaksALock(t *testing.T) {
	for _, force := range []bool{false, true} {
		path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
		r := byHand(t, force)
		var done, seen atomic.Int32
		var both sync.WaitGroup
		for range 2 {
			l, _ := remover(func(string, string) error {
				time.Sleep(rand.N(2 * time.Millisecond))
				return nil
			})
			info := l.Inspect(path)
			both.Go(func() {
				switch err := l.Break(t.Context(), info, r); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, ErrChanged):
					seen.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		both.Wait()
		if done.Load() != 1 || seen.Load() != 1 || len(logged(t, r)) != 1 {
			t.Errorf("%d broke it, %d saw that, %d entries", done.Load(), seen.Load(), len(logged(t, r)))
		}
	}
}

func TestNothingIsRemovedThatCannotBeLogged(t *testing.T) {
	dir := t.TempDir()
	l, _ := remover(nil)
	r := byHand(t, false)
	if err := os.Mkdir(r.Log.Path, 0o700); err != nil { // a directory in its place
		t.Fatal(err)
	}
	lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
	token := putLock(t, dir, ".other.lock.reclaim", lockRecord(time.Minute, dead))
	temp := putLock(t, dir, ".other.lock.tmp.1.2.3", lockRecord(time.Minute, dead))
	for what, err := range map[string]error{
		"lock":  l.Break(t.Context(), l.Inspect(lock), r),
		"token": l.RemoveToken(t.Context(), l.InspectToken(token), r),
		"temp":  l.RemoveTemp(t.Context(), l.InspectTemp(temp), r),
		"undo": l.Restore(t.Context(), audit.Entry{
			Action: audit.ActionBreak, Kind: "lock", Path: filepath.Join(dir, "free.lock"), Before: lockRecord(0, dead).Encode(),
		}, r),
	} {
		if !errors.Is(err, ErrAudit) || !errors.Is(err, audit.ErrNotRegular) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := inDir(t, dir); got != ".other.lock.reclaim .other.lock.tmp.1.2.3 cache.lock" {
		t.Errorf("left %s", got)
	}
}

func TestBreakIsBlockedByAToken(t *testing.T) {
	for what, token := range map[string]*record.Lock{
		"alive":   lockRecord(0),
		"unknown": lockRecord(0, remote),
		"alive, of another guard": lockRecord(0, func(r *record.Lock) {
			r.Ours.Guard = &record.Guard{Dev: 1, Ino: 1}
		}),
	} {
		for name, path := range stale(t, t.TempDir()) {
			if name == "expired" && token.Ours.Guard != nil {
				continue // whether the guard clears it is found out after the watch
			}
			l, _ := remover(nil)
			putLock(t, filepath.Dir(path), record.TokenName(filepath.Base(path)), token)
			r := byHand(t, true)
			began := time.Now()
			err := l.Break(t.Context(), l.Inspect(path), r)
			e, ok := errors.AsType[*ConflictError](err)
			if !ok || !errors.Is(err, ErrBlocked) || e.Token == nil || e.Token.Path != tokenOf(path) || e.Op != "break" {
				t.Errorf("%s, token %s: %v", name, what, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s, token %s: took %v", name, what, took)
			}
			if _, err := os.Lstat(path); err != nil || len(logged(t, r)) != 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestExpiredLockIsWatchedBeforeItIsBroken(t *testing.T) {
	type result struct {
		err  error
		took time.Duration
	}
	run := func(t *testing.T, before func(l *Locker, path string), during func(path string), ctx context.Context) (result, string, Removal) {
		t.Helper()
		path := putLock(t, t.TempDir(), "cache.lock", expired(2*time.Minute))
		l, _ := remover(nil)
		before(l, path)
		r := byHand(t, false)
		info := l.Inspect(path)
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			during(path)
		}()
		err := l.Break(ctx, info, r)
		took := time.Since(began)
		<-done
		return result{err, took}, path, r
	}
	nothing := func(string) {}
	unseen := func(*Locker, string) {}
	t.Run("for 16 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got, path, r := run(t, unseen, nothing, t.Context())
			if got.err != nil || got.took < 16*time.Second || got.took > 17*time.Second || len(logged(t, r)) != 1 {
				t.Errorf("%v after %v", got.err, got.took)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	})
	t.Run("less what was watched before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got, _, _ := run(t, func(l *Locker, path string) {
				for range 10 {
					l.Inspect(path)
					time.Sleep(time.Second)
				}
			}, nothing, t.Context())
			if got.err != nil || got.took < 6*time.Second || got.took > 7*time.Second {
				t.Errorf("%v after %v", got.err, got.took)
			}
		})
	})
	t.Run("a beat is seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			beat := expired(2 * time.Minute)
			got, path, r := run(t, unseen, func(path string) {
				time.Sleep(5 * time.Second)
				beat.HeartbeatAtMS = ms(0)
				if err := rewrite(path, beat.Encode()); err != nil {
					t.Error(err)
				}
			}, t.Context())
			if !errors.Is(got.err, ErrChanged) || got.took > 7*time.Second || len(logged(t, r)) != 0 {
				t.Errorf("%v after %v", got.err, got.took)
			}
			if now, _ := os.ReadFile(path); !bytes.Equal(now, beat.Encode()) {
				t.Errorf("left %q", now)
			}
		})
	})
	t.Run("a touch is seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got, path, _ := run(t, unseen, func(path string) {
				time.Sleep(15500 * time.Millisecond)
				at := time.Now().Add(-80 * time.Second)
				if err := os.Chtimes(path, at, at); err != nil {
					t.Error(err)
				}
			}, t.Context())
			if _, err := os.Lstat(path); err != nil || !errors.Is(got.err, ErrChanged) {
				t.Errorf("%v after %v", got.err, got.took)
			}
		})
	})
	t.Run("as long as the context lets it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			got, path, _ := run(t, unseen, nothing, ctx)
			e, ok := errors.AsType[*ConflictError](got.err)
			if !ok || !errors.Is(got.err, ErrNotYet) || !errors.Is(got.err, context.DeadlineExceeded) || got.took > 5*time.Second {
				t.Fatalf("%v after %v", got.err, got.took)
			}
			if e.Left < 11*time.Second || e.Left > 13*time.Second || e.Holder.PID != 4242 {
				t.Errorf("left %v, holder %+v", e.Left, e.Holder)
			}
			if _, err := os.Lstat(path); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a beat after the watch is seen, by force, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, step := range []string{"guarded", "tokened", "reread", "auditing", "audited"} {
				beat := expired(2 * time.Minute)
				path := putLock(t, t.TempDir(), "cache.lock", beat)
				l, _ := remover(func(s, _ string) error {
					if s != step {
						return nil
					}
					beat.HeartbeatAtMS = ms(0)
					return rewrite(path, beat.Encode())
				})
				if err := l.Break(t.Context(), l.Inspect(path), byHand(t, true)); !errors.Is(err, ErrChanged) {
					t.Errorf("%s: %v", step, err)
				}
				if now, _ := os.ReadFile(path); !bytes.Equal(now, beat.Encode()) {
					t.Errorf("%s: left %q", step, now)
				}
			}
		})
	})
}
