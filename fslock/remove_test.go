package fslock

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// remover is a Locker of process 1000 on the made-up machine, and what it logs.
func remover(fault func(step, path string) error) (*Locker, *bytes.Buffer) {
	var log bytes.Buffer
	table := machine(func(m *proctest.Machine) {
		m.PID = 1000
		m.Procs = append(m.Procs, proctest.Proc{PID: 1000, Start: 555, Name: "holdfast"})
	})
	return &Locker{Table: table, Log: slog.New(slog.NewTextHandler(&log, nil)), fault: fault}, &log
}

// inDir are the names in a directory.
func inDir(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// rewrite changes a file in place, as a heartbeat does.
func rewrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// replaceBy puts another file in the place of one, as a new owner does once the old file is gone.
func replaceBy(path string, data []byte) error {
	return record.Replace(path, data, record.ReplaceOptions{})
}

func expired(beat time.Duration) *record.Lock { return lockRecord(beat, remote) }

// stale are the locks that a contender takes over.
func stale(t *testing.T, dir string) map[string]string {
	t.Helper()
	return map[string]string{
		"dead":    putLock(t, dir, "dead.lock", lockRecord(time.Minute, dead)),
		"expired": putLock(t, dir, "expired.lock", expired(2*time.Minute)),
		"empty":   put(t, filepath.Join(dir, "empty.lock"), nil, time.Minute),
		"torn":    put(t, filepath.Join(dir, "torn.lock"), lockRecord(0).Encode()[:40], time.Minute),
	}
}

func TestStaleLockIsTakenOver(t *testing.T) {
	for what, path := range stale(t, t.TempDir()) {
		l, log := remover(nil)
		if err := l.takeOver(t.Context(), l.Inspect(path), time.Second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := strings.Count(log.String(), "took over lock"); n != 1 || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%s: logged %q", what, log)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there", what)
		}
		if rest := inDir(t, filepath.Dir(path)); strings.Contains(rest, ".reclaim") || strings.Contains(rest, ".tmp.") || strings.Contains(rest, ".guard") {
			t.Errorf("%s: left %s", what, rest)
		}
	}
}

func TestHeldLockIsNotTakenOver(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{
		putLock(t, dir, "live.lock", lockRecord(time.Second)),
		putLock(t, dir, "late.lock", lockRecord(time.Hour)),
		putLock(t, dir, "remote.lock", expired(time.Minute)),
		put(t, filepath.Join(dir, "young.lock"), nil, 5*time.Second),
		put(t, filepath.Join(dir, "Cargo.lock"), []byte("# generated\n[[package]]\n"), time.Hour),
		filepath.Join(dir, "free.lock"),
	} {
		before, _ := os.ReadFile(path)
		l, log := remover(nil)
		info := l.Inspect(path)
		info.Verdict.State, info.Verdict.Claimable.When = verdict.Dead, verdict.Now // whatever the caller believes
		if err := l.takeOver(t.Context(), info, time.Second); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) || log.Len() > 0 {
			t.Errorf("%s changed, or logged %q", path, log)
		}
	}
}

// Whatever happens to a stale lock between any two steps is seen before it is removed.
func TestWhatHappensBetweenAnyTwoStepsIsSeen(t *testing.T) {
	newOwner := lockRecord(time.Second, func(r *record.Lock) { r.WriterEpoch = "4242-9" })
	for _, step := range []string{"guarded", "tokened", "reread"} {
		for what, act := range map[string]func(path string) error{
			"a new owner": func(path string) error { return replaceBy(path, newOwner.Encode()) },
			"a new owner in the same file": func(path string) error {
				return rewrite(path, newOwner.Encode())
			},
			"the owner's release": os.Remove,
			"a beat": func(path string) error {
				now, _ := remover(nil)
				r := expired(0)
				if old := now.Inspect(path).Facts.Record; old != nil {
					r = old
				}
				r.HeartbeatAtMS = ms(0)
				return rewrite(path, r.Encode())
			},
			"a touch": func(path string) error { return os.Chtimes(path, time.Now(), time.Now()) },
			"a directory in its place": func(path string) error {
				return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
			},
			"a link in its place": func(path string) error {
				return errors.Join(os.Rename(path, path+".aside"), os.Symlink(path+".aside", path))
			},
		} {
			for name, path := range stale(t, t.TempDir()) {
				if name == "dead" && step != "reread" && (what == "a beat" || what == "a touch") {
					continue // the dead do not beat: who rewrote it does not make it live
				}
				var left []byte
				l, log := remover(func(s, p string) error {
					if s != step || p != path {
						return nil
					}
					err := act(path)
					left, _ = os.ReadFile(path)
					return err
				})
				err := l.takeOver(t.Context(), l.Inspect(path), time.Second)
				if !errors.Is(err, ErrChanged) {
					t.Errorf("%s, %s at %s: %v", name, what, step, err)
				}
				if now, _ := os.ReadFile(path); !bytes.Equal(now, left) {
					t.Errorf("%s, %s at %s: %q became %q", name, what, step, left, now)
				}
				if rest := inDir(t, filepath.Dir(path)); strings.Contains(rest, ".reclaim") || log.Len() > 0 {
					t.Errorf("%s, %s at %s: left %s, logged %q", name, what, step, rest, log)
				}
			}
		}
	}
}

// It would be taken as well, but by whoever has looked at it: with the first one's identity goes nothing else.
func TestAnotherDeadOwnerIsNotTheOneThatWasLookedAt(t *testing.T) {
	for _, step := range []string{"guarded", "tokened", "reread"} {
		path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
		next := lockRecord(time.Minute, dead, func(r *record.Lock) { r.WriterEpoch = "999999-2" }).Encode()
		l, _ := remover(func(s, _ string) error {
			if s == step {
				return replaceBy(path, next)
			}
			return nil
		})
		if err := l.takeOver(t.Context(), l.Inspect(path), time.Second); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", step, err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, next) {
			t.Errorf("%s: left %q", step, now)
		}
	}
}

// A heartbeat is no part of an identity: whoever rewrote a dead holder's does not make it live.
func TestDeadHolderWhoseHeartbeatMovedIsTakenOver(t *testing.T) {
	r := lockRecord(time.Minute, dead)
	path := putLock(t, t.TempDir(), "cache.lock", r)
	l, _ := remover(func(s, _ string) error {
		if s == "tokened" {
			r.HeartbeatAtMS = ms(0)
			return rewrite(path, r.Encode())
		}
		return nil
	})
	if err := l.takeOver(t.Context(), l.Inspect(path), time.Second); err != nil {
		t.Error(err)
	}
}

func TestTornLockThatIsBeingWrittenIsLeft(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), nil, time.Minute)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	dev, ino, ok := record.Inode(st)
	if !ok {
		skip(t, "no inode numbers")
	}
	world := proctest.NewWorld(proctest.Machine{Host: "here", BootID: "boot", PID: 1000, Procs: []proctest.Proc{{PID: 1000, Start: 1}}})
	l := &Locker{Table: world.Table(), fault: func(step, _ string) error {
		if step == "tokened" {
			world.Change(func(m *proctest.Machine) {
				m.Procs = append(m.Procs, proctest.Proc{PID: 7, Start: 2, Writes: []proctest.File{{Dev: dev, Ino: ino}}})
			})
		}
		return nil
	}}
	if err := l.takeOver(t.Context(), l.Inspect(path), time.Second); !errors.Is(err, ErrChanged) {
		t.Error(err)
	}
}

func TestDeadHolderThatIsOnlyUnseenLaterIsNotTaken(t *testing.T) {
	path := putLock(t, t.TempDir(), "cache.lock", lockRecord(2*time.Minute, dead))
	world := proctest.NewWorld(proctest.Machine{Host: "here", BootID: "boot", PIDNS: 1, Initial: true})
	l := &Locker{Table: world.Table(), fault: func(step, _ string) error {
		if step == "tokened" {
			world.Change(func(m *proctest.Machine) { m.Initial = false }) // no absence is proof now
		}
		return nil
	}}
	info := l.Inspect(path)
	if info.Verdict.State != verdict.Dead {
		t.Fatal(info.Verdict)
	}
	err := l.takeOver(t.Context(), info, time.Second)
	if e, ok := errors.AsType[*ConflictError](err); !ok || !errors.Is(err, ErrChanged) || e.Verdict.State != verdict.Expired {
		t.Errorf("it must be watched first: %v", err)
	}
}

func TestFailureAtAnyStepLeavesNothingBehind(t *testing.T) {
	boom := errors.New("boom")
	for _, step := range []string{"guarded", "tokened", "reread", "removed", "dropping"} {
		path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
		l, _ := remover(func(s, _ string) error {
			if s == step {
				return boom
			}
			return nil
		})
		if err := l.takeOver(t.Context(), l.Inspect(path), time.Second); !errors.Is(err, boom) {
			t.Errorf("%s: %v", step, err)
		}
		if rest := inDir(t, filepath.Dir(path)); rest != "cache.lock" && (rest != "" || step != "removed" && step != "dropping") {
			t.Errorf("%s: left %s", step, rest)
		}
		if g, err := l.enterGuard(t.Context(), "test", path, 0); err != nil {
			t.Errorf("%s: the guard was not left: %v", step, err)
		} else {
			g.leave()
		}
	}
}

// Many take the same dead lock, with delays everywhere; the winner is a new owner at once, whom nobody else removes.
func TestOneOfManyTakesOverADeadLock(t *testing.T) {
	for _, variant := range []string{"directory", "file"} {
		t.Run(variant, func(t *testing.T) {
			path := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
			winner := lockRecord(0).Encode()
			var won, inside atomic.Int32
			var all sync.WaitGroup
			for range 12 {
				l, _ := remover(nil)
				l.local = func(string) (string, bool) { return variant, variant == "directory" }
				l.fault = func(step, _ string) error {
					switch step {
					case "guarded":
						if inside.Add(1) > 1 {
							t.Error("two have the guard")
						}
					case "dropping":
						inside.Add(-1)
					case "removed":
						if err := record.Create(path, winner); err != nil {
							t.Error("the name was not free: ", err)
						}
					}
					time.Sleep(rand.N(time.Millisecond))
					return nil
				}
				info := l.Inspect(path)
				all.Go(func() {
					switch err := l.takeOver(t.Context(), info, time.Minute); {
					case err == nil:
						won.Add(1)
					case !errors.Is(err, ErrChanged):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Errorf("%d winners", won.Load())
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, winner) {
				t.Errorf("the winner's lock is %q (%v)", got, err)
			}
		})
	}
}

// tokenOf is the path of the token beside a lock.
func tokenOf(lock string) string {
	return filepath.Join(filepath.Dir(lock), record.TokenName(filepath.Base(lock)))
}

func TestTokenOfEveryState(t *testing.T) {
	inode := func(path string) *record.Guard {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		dev, ino, ok := record.Inode(st)
		if !ok {
			skip(t, "no inode numbers")
		}
		return &record.Guard{Dev: dev, Ino: ino}
	}
	reclaim := func(r *record.Lock) { r.WriterEpoch = "reclaim-1-1" }
	for _, tc := range []struct {
		what  string
		data  func(dir string) []byte
		age   time.Duration
		state verdict.State // of the token that blocks
		clear bool
	}{
		{"alive", func(string) []byte { return lockRecord(time.Hour, reclaim).Encode() }, 0, verdict.Alive, false},
		{"dead", func(string) []byte { return lockRecord(time.Second, reclaim, dead).Encode() }, 0, 0, true},
		{"of another host", func(string) []byte { return lockRecord(time.Hour, reclaim, remote).Encode() }, time.Hour, verdict.Unknown, false},
		{"malformed and young", func(string) []byte { return []byte("{") }, 30 * time.Second, verdict.Malformed, false},
		{"malformed and old", func(string) []byte { return []byte("{") }, 61 * time.Second, 0, true},
		{"empty and young", func(string) []byte { return nil }, time.Second, verdict.Malformed, false},
		{"empty and old", func(string) []byte { return nil }, time.Hour, 0, true},
		{"alive, of this guard, which its maker has left", func(dir string) []byte {
			return lockRecord(time.Second, reclaim, func(r *record.Lock) { r.Ours.Guard = inode(dir) }).Encode()
		}, 0, 0, true},
		{"alive, of another guard", func(dir string) []byte {
			return lockRecord(time.Second, reclaim, func(r *record.Lock) {
				r.Ours.Guard = inode(dir)
				r.Ours.Guard.Ino++
			}).Encode()
		}, 0, verdict.Alive, false},
		{"of another boot that names this guard", func(dir string) []byte {
			return lockRecord(time.Second, reclaim, remote, func(r *record.Lock) { r.Ours.Guard = inode(dir) }).Encode()
		}, 0, verdict.Unknown, false},
		{"of no known boot that names this guard", func(dir string) []byte {
			return lockRecord(time.Second, reclaim, func(r *record.Lock) { r.BootID, r.Ours.Guard = nil, inode(dir) }).Encode()
		}, 0, verdict.Alive, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
			l, _ := remover(nil)
			info := l.Inspect(lock)
			data := tc.data(dir)
			token := put(t, tokenOf(lock), data, tc.age)
			err := l.takeOver(t.Context(), info, time.Second)
			if tc.clear {
				if err != nil || inDir(t, dir) != "" {
					t.Errorf("%v, left %s", err, inDir(t, dir))
				}
				return
			}
			e, ok := errors.AsType[*ConflictError](err)
			if !ok || !errors.Is(err, ErrBlocked) || e.Path != lock || e.Token == nil || e.Token.State != tc.state || e.Token.Path != token {
				t.Fatalf("%v (%+v)", err, e)
			}
			if e.Verdict.State != verdict.Dead || e.Verdict.Claimable.When != verdict.Blocked {
				t.Errorf("verdict %+v", e.Verdict)
			}
			if got, err := os.ReadFile(token); err != nil || !bytes.Equal(got, data) || inDir(t, dir) != ".cache.lock.reclaim cache.lock" {
				t.Errorf("the token is %q (%v) now, beside %s", got, err, inDir(t, dir))
			}
		})
	}
}

func TestTokenThatChangesWhileItIsClearedIsLeft(t *testing.T) {
	fresh := lockRecord(0, func(r *record.Lock) { r.WriterEpoch = "reclaim-4242-2" })
	old := lockRecord(0, dead, func(r *record.Lock) { r.WriterEpoch = "reclaim-4242-1" })
	for what, tc := range map[string]struct {
		step string
		act  func(token string) error
	}{
		"another's before it is cleared": {"clearing", func(token string) error { return replaceBy(token, fresh.Encode()) }},
		"another's after it was cleared": {"cleared", func(token string) error { return record.Create(token, fresh.Encode()) }},
	} {
		t.Run(what, func(t *testing.T) {
			lock := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
			putLock(t, filepath.Dir(lock), ".cache.lock.reclaim", old)
			l, _ := remover(func(step, path string) error {
				if step == tc.step {
					return tc.act(path)
				}
				return nil
			})
			if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); !errors.Is(err, ErrBlocked) {
				t.Error(err)
			}
			if got, _ := os.ReadFile(tokenOf(lock)); !bytes.Equal(got, fresh.Encode()) {
				t.Errorf("the token is %q", got)
			}
		})
	}
	t.Run("it goes by itself", func(t *testing.T) {
		lock := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
		putLock(t, filepath.Dir(lock), ".cache.lock.reclaim", old)
		l, _ := remover(func(step, path string) error {
			if step == "clearing" {
				return os.Remove(path)
			}
			return nil
		})
		if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); err != nil {
			t.Error(err)
		}
	})
}

// An original in another pid namespace takes our token for a dead one's, and works on the lock at the same time.
func TestTokenThatIsRemovedFromUnderUsStopsTheRemoval(t *testing.T) {
	theirs := lockRecord(0, func(r *record.Lock) { r.WriterEpoch = "reclaim-4242-7" }).Encode()
	for what, after := range map[string][]byte{"removed": nil, "replaced": theirs} {
		lock := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
		l, _ := remover(func(step, _ string) error {
			switch {
			case step != "tokened":
				return nil
			case after == nil:
				return os.Remove(tokenOf(lock))
			default:
				return replaceBy(tokenOf(lock), after)
			}
		})
		if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
		if got, _ := os.ReadFile(tokenOf(lock)); !bytes.Equal(got, after) {
			t.Errorf("%s: a token that is not ours is %q now", what, got)
		}
		if _, err := os.Lstat(lock); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestOurTokenIsWholeAndNamesItsGuard(t *testing.T) {
	lock := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
	var tok TokenInfo
	l, _ := remover(nil)
	l.fault = func(step, _ string) error {
		if step == "tokened" {
			tok = l.InspectToken(tokenOf(lock))
		}
		return nil
	}
	if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); err != nil {
		t.Fatal(err)
	}
	r := tok.Facts.Record
	if tok.Token.State != verdict.Alive || !tok.Facts.Self || !strings.HasPrefix(r.WriterEpoch, "reclaim-1000-") {
		t.Errorf("token %+v", r)
	}
	if r.HeartbeatAtMS != r.CreatedAtMS || r.Ours.BeatBootMS == 0 || *r.BootID != "boot" || r.Hostname != "here" || *r.ProcessStartTime != 555 {
		t.Errorf("token %+v", r)
	}
	if st, err := os.Stat(filepath.Dir(lock)); err == nil {
		if dev, ino, ok := record.Inode(st); ok && (r.Ours.Guard == nil || *r.Ours.Guard != record.Guard{Dev: dev, Ino: ino}) {
			t.Errorf("guard %+v, want %d:%d", r.Ours.Guard, dev, ino)
		}
	}
}

func TestLockWhoseNameIsTooLongForATokenIsTakenOver(t *testing.T) {
	for _, n := range []int{246, 247, 250, 255} {
		name := strings.Repeat("x", n-len(".lock")) + ".lock"
		for _, local := range []bool{true, false} {
			lock := putLock(t, t.TempDir(), name, lockRecord(time.Minute, dead))
			tokens := 0
			l, _ := remover(nil)
			l.local = func(string) (string, bool) { return "", local }
			l.fault = func(step, _ string) error {
				if step == "tokened" {
					tokens = strings.Count(inDir(t, filepath.Dir(lock)), ".reclaim")
				}
				return nil
			}
			if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
			if want := map[bool]int{true: 1}[n <= 246]; tokens != want {
				t.Errorf("%d bytes: %d tokens, want %d", n, tokens, want)
			}
		}
	}
}

func TestTakeOverWhereNothingCanBeWrittenSaysSo(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "gone", "cache.lock")
	info := Info{Path: lock, Facts: &verdict.LockFacts{}}
	l, _ := remover(nil)
	err := l.takeOver(t.Context(), info, time.Second)
	if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrNotExist) || e.Path != lock || e.Op != "acquire" {
		t.Error(err)
	}
	// A directory stands where the token's temp would go: no.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dead := putLock(t, t.TempDir(), "cache.lock", lockRecord(time.Minute, dead))
	if err := l.takeOver(ctx, l.Inspect(dead), 0); err != nil {
		t.Errorf("one attempt is made whatever ctx says: %v", err)
	}
}

func TestUnlinkUnchanged(t *testing.T) {
	dir := t.TempDir()
	see := func(path string) (record.Stat, []byte) {
		f, err := record.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		return f.Stat, f.Data
	}
	for what, change := range map[string]func(path string) error{
		"gone":     os.Remove,
		"touched":  func(p string) error { return os.Chtimes(p, time.Now(), time.Now()) },
		"replaced": func(p string) error { return replaceBy(p, []byte("same")) },
		"grown":    func(p string) error { return rewrite(p, bytes.Repeat([]byte("x"), record.MaxSize+1)) },
	} {
		path := put(t, filepath.Join(dir, what), []byte("same"), time.Minute)
		st, data := see(path)
		if err := change(path); err != nil {
			t.Fatal(err)
		}
		if err := new(Locker).unlinkUnchanged(path, &verdict.Seen{File: st}, data); !errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	path := put(t, filepath.Join(dir, "x"), []byte("same"), time.Minute)
	st, data := see(path)
	if err := new(Locker).unlinkUnchanged(path, &verdict.Seen{File: st}, nil); !errors.Is(err, ErrChanged) {
		t.Errorf("what was not read is removed: %v", err)
	}
	if err := new(Locker).unlinkUnchanged(path, &verdict.Seen{File: st}, data); err != nil {
		t.Error(err)
	}
	if err := new(Locker).unlinkUnchanged(filepath.Join(put(t, path, nil, 0), "x"), &verdict.Seen{}, data); err == nil || errors.Is(err, ErrChanged) {
		t.Errorf("a path through a file: %v", err)
	}
	if err := unlink(dir); err == nil {
		t.Error("a directory was removed")
	}
}
