package fslock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// removeHelper is another process that removes: "VERB\nSTEP\nPATH\nWAY". It says that it has come to the step and stays there
// for ever; WAY is "file" for guards that are files.
func removeHelper(order string) error {
	o := strings.Split(order, "\n")
	verb, step, path := o[0], o[1], o[2]
	l := &Locker{}
	if o[3] == "file" {
		besideGuards(l)
	}
	ctx := context.Background()
	l.fault = func(s, _ string) error {
		if s == step {
			fmt.Println("at", s)
			select {}
		}
		return nil
	}
	r := Removal{Log: &audit.Log{Path: filepath.Join(filepath.Dir(path), "..", "audit.jsonl")}}
	switch verb {
	case "enter":
		if _, err := l.enterGuard(ctx, "test", path, time.Minute); err != nil {
			return err
		}
		fmt.Println("entered")
		select {}
	case "take":
		return l.takeOver(ctx, l.Inspect(path), time.Minute)
	case "break":
		return l.Break(ctx, l.Inspect(path), r)
	case "token":
		return l.RemoveToken(ctx, l.InspectToken(tokenOf(path)), r)
	case "race": // prints nothing until all are told to go, and says in a file how it ended
		fmt.Println("ready")
		for {
			if _, err := os.Lstat(path + ".go"); err == nil {
				break
			}
		}
		l.fault = func(string, string) error {
			time.Sleep(rand.N(time.Millisecond))
			return nil
		}
		outcome := "taken"
		if err := l.takeOver(ctx, l.Inspect(path), time.Minute); err != nil {
			outcome = err.Error()
			if errors.Is(err, ErrChanged) {
				outcome = "changed"
			}
		} else if err := record.Create(path, (&record.Lock{PID: uint32(os.Getpid()), Hostname: "winner"}).Encode()); err != nil {
			outcome = err.Error()
		}
		return replaceBy(fmt.Sprintf("%s.%d", path, os.Getpid()), []byte(outcome))
	}
	return fmt.Errorf("unknown order %q", order)
}

// deadRecord is the record of a process that ran here and was reaped.
func deadRecord(t *testing.T, mod ...func(*record.Lock)) *record.Lock {
	t.Helper()
	child, _ := start(t, "wait")
	r := recordOf(t, child.Process.Pid, time.Second, mod...)
	killed(t, child)
	return r
}

func killed(t *testing.T, child *exec.Cmd) {
	t.Helper()
	if err := child.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
}

// A process that is killed at any step leaves nothing that stops the next one.
func TestNextAttemptSucceedsAfterAnyStepAtWhichAnotherWasKilled(t *testing.T) {
	for _, way := range []string{"directory", "file"} {
		for _, tc := range []struct {
			verb, step string
			token      bool // one is left over
			gone       bool // the lock, when it was killed
		}{
			{verb: "take", step: "guarded"},
			{verb: "take", step: "clearing", token: true},
			{verb: "take", step: "cleared", token: true},
			{verb: "take", step: "tokened"},
			{verb: "take", step: "reread"},
			{verb: "take", step: "removed", gone: true},
			{verb: "take", step: "dropping", gone: true},
			{verb: "break", step: "reread"},
			{verb: "break", step: "auditing"},
			{verb: "break", step: "audited"},
			{verb: "break", step: "removed", gone: true},
			{verb: "token", step: "audited", token: true},
			{verb: "token", step: "removed", token: true},
		} {
			t.Run(way+"/"+tc.verb+"/"+tc.step, func(t *testing.T) {
				lock := putLock(t, filepath.Join(t.TempDir(), "dir"), "cache.lock", deadRecord(t))
				if tc.token {
					putLock(t, filepath.Dir(lock), ".cache.lock.reclaim", deadRecord(t))
				}
				child, line := start(t, strings.Join([]string{"remove", tc.verb, tc.step, lock, way}, "\n"))
				if line != "at "+tc.step+"\n" {
					t.Fatalf("it said %q", line)
				}
				l := &Locker{}
				if way == "file" {
					besideGuards(l)
				}
				if _, err := l.enterGuard(t.Context(), "test", lock, 0); !errors.Is(err, ErrBlocked) {
					t.Errorf("it has no guard: %v", err)
				}
				killed(t, child)
				info := l.Inspect(lock)
				if info.Facts.Missing != tc.gone {
					t.Fatalf("missing = %v", info.Facts.Missing)
				}
				if tc.gone {
					// Whoever comes next finds the name free; the token goes with the next removal there.
					putLock(t, filepath.Dir(lock), "cache.lock", deadRecord(t))
					info = l.Inspect(lock)
				}
				if err := l.takeOver(t.Context(), info, time.Minute); err != nil {
					t.Fatal(err)
				}
				if rest := strings.TrimSuffix(inDir(t, filepath.Dir(lock)), ".cache.lock.guard"); rest != "" {
					t.Errorf("left %s", rest)
				}
			})
		}
	}
}

// A maker that has left the guard without its token is not asked whether it lives: here it does.
func TestTokenOfALiveProcessThatHasLeftTheGuardIsCleared(t *testing.T) {
	lock := putLock(t, t.TempDir(), "cache.lock", deadRecord(t))
	l := &Locker{fault: func(step, _ string) error {
		if step == "dropping" {
			return os.Rename(tokenOf(lock), lock+".aside")
		}
		return nil
	}}
	if err := l.takeOver(t.Context(), l.Inspect(lock), time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(lock+".aside", tokenOf(lock)); err != nil {
		t.Fatal(err)
	}
	if got := l.InspectToken(tokenOf(lock)); got.Token.State != verdict.Alive {
		t.Fatalf("token %+v", got.Token)
	}
	l.fault = nil
	putLock(t, filepath.Dir(lock), "cache.lock", deadRecord(t))
	if err := l.takeOver(t.Context(), l.Inspect(lock), time.Minute); err != nil || inDir(t, filepath.Dir(lock)) != "" {
		t.Errorf("%v, left %s", err, inDir(t, filepath.Dir(lock)))
	}
}

func TestOneOfManyProcessesTakesOver(t *testing.T) {
	for _, way := range []string{"directory", "file"} {
		lock := putLock(t, t.TempDir(), "cache.lock", deadRecord(t))
		const racers = 6
		for range racers {
			if _, line := start(t, strings.Join([]string{"remove", "race", "", lock, way}, "\n")); line != "ready\n" {
				t.Fatal(line)
			}
		}
		put(t, lock+".go", nil, 0)
		var outcomes []string
		eventually(t, "everybody's outcome", func() bool {
			outcomes = nil
			files, _ := filepath.Glob(lock + ".[0-9]*")
			for _, f := range files {
				data, _ := os.ReadFile(f)
				outcomes = append(outcomes, string(data))
			}
			return len(outcomes) == racers
		})
		count := map[string]int{}
		for _, o := range outcomes {
			count[o]++
		}
		// Who came when the winner was there already saw a lock that nobody may take.
		if count["taken"] != 1 || count["changed"] != racers-1 {
			t.Errorf("%s: %q", way, outcomes)
		}
		if r := (&Locker{}).Inspect(lock).Facts.Record; r == nil || r.Hostname != "winner" {
			t.Errorf("%s: the lock is %+v", way, r)
		}
		if rest := inDir(t, filepath.Dir(lock)); strings.Contains(rest, ".reclaim") {
			t.Errorf("%s: left %s", way, rest)
		}
	}
}

func TestGuardThatAStoppedProcessHasIsNotWaitedForAndNamesIt(t *testing.T) {
	for _, way := range []string{"directory", "file"} {
		lock := putLock(t, t.TempDir(), "cache.lock", deadRecord(t))
		child, _ := start(t, strings.Join([]string{"remove", "enter", "", lock, way}, "\n"))
		pid := child.Process.Pid
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it stops", func() bool { return stat(t, pid)[0] == "T" })
		l := &Locker{}
		if way == "file" {
			besideGuards(l)
		}
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
			began := time.Now()
			err := l.takeOver(t.Context(), l.Inspect(lock), wait)
			e, ok := errors.AsType[*BusyError](err)
			if !ok || !errors.Is(err, ErrBlocked) || e.Waited < wait || e.Waited > wait+5*time.Second {
				t.Fatalf("%s: %v", way, err)
			}
			if took := time.Since(began); took > wait+10*time.Second {
				t.Errorf("%s: took %v", way, took)
			}
			if len(e.Holders) != 1 || e.Holders[0].PID != pid || !e.Holders[0].Stopped || !strings.Contains(err.Error(), fmt.Sprintf("kill -CONT %d", pid)) {
				t.Errorf("%s: %v", way, err)
			}
		}
		killed(t, child)
		if err := l.takeOver(t.Context(), l.Inspect(lock), time.Minute); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// A child that a process starts while it is in the guard does not stay in it.
func TestGuardIsNotInherited(t *testing.T) {
	for what, l := range map[string]*Locker{"directory": {}, "file": besideGuards(&Locker{})} {
		path := filepath.Join(t.TempDir(), "cache.lock")
		g := enter(t, l, path)
		start(t, "wait")
		g.leave()
		next, err := l.enterGuard(t.Context(), "test", path, 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		next.leave()
	}
}

func TestGuardThatIsNoFileIsRefusedAtOnce(t *testing.T) {
	for what, make := range specials(t) {
		if what == "a sparse GiB" {
			continue // it is a file: nobody reads it
		}
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
			guard := filepath.Join(dir, ".cache.lock.guard")
			if err := make(guard); err != nil {
				skip(t, "cannot make "+what+": ", err)
			}
			before, _ := os.Lstat(guard)
			l, _ := remover(nil)
			besideGuards(l)
			atOnce(t, func() {
				err := l.takeOver(t.Context(), l.Inspect(lock), time.Hour)
				e, ok := errors.AsType[*ConflictError](err)
				if !ok || !errors.Is(err, ErrUnreadable) || e.Path != guard || e.Verdict.Cause != "not-regular" {
					t.Errorf("%v (%+v)", err, e)
				}
			})
			if after, err := os.Lstat(guard); err != nil || !os.SameFile(before, after) || inDir(t, dir) != ".cache.lock.guard cache.lock" {
				t.Errorf("left %s (%v)", inDir(t, dir), err)
			}
		})
	}
}

func TestTokenThatIsNoFileBlocksAndStays(t *testing.T) {
	for what, make := range specials(t) {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
			l, _ := remover(nil)
			info := l.Inspect(lock)
			token := tokenOf(lock)
			if err := make(token); err != nil {
				skip(t, "cannot make "+what+": ", err)
			}
			before, _ := os.Lstat(token)
			atOnce(t, func() {
				err := l.takeOver(t.Context(), info, time.Hour)
				e, ok := errors.AsType[*ConflictError](err)
				if !ok || !errors.Is(err, ErrBlocked) || e.Token == nil || e.Token.State != verdict.Unknown {
					t.Errorf("%v (%+v)", err, e)
				}
			})
			if after, err := os.Lstat(token); err != nil || !os.SameFile(before, after) || inDir(t, dir) != ".cache.lock.reclaim cache.lock" {
				t.Errorf("left %s (%v)", inDir(t, dir), err)
			}
		})
	}
}

func TestGuardFileHasTheModeThatTheUmaskLeaves(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	l := besideGuards(&Locker{})
	path := filepath.Join(t.TempDir(), "cache.lock")
	enter(t, l, path).leave()
	if st, err := os.Lstat(filepath.Join(filepath.Dir(path), ".cache.lock.guard")); err != nil || st.Mode() != 0o640 {
		t.Errorf("%v (%v)", st.Mode(), err)
	}
}

// asOrdinaryUser does something without root's right to pass over file modes.
func asOrdinaryUser(t *testing.T, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan error)
	go func() {
		// The thread ends with the goroutine that stays locked to it: nobody else gets to run as this user.
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			done <- err
			return
		}
		do()
		done <- nil
	}()
	if err := <-done; err != nil {
		skip(t, err)
	}
}

func TestGuardOfAnotherUserIsLockedByWhoeverMayReadIt(t *testing.T) {
	l := besideGuards(&Locker{})
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "cache.lock")
	guard := put(t, filepath.Join(dir, ".cache.lock.guard"), nil, 0)
	if err := os.Chmod(guard, 0o444); err != nil {
		t.Fatal(err)
	}
	asOrdinaryUser(t, func() {
		g, err := l.enterGuard(t.Context(), "test", path, 0)
		if err != nil {
			t.Error(err)
			return
		}
		g.leave()
	})
	if err := os.Chmod(guard, 0); err != nil {
		t.Fatal(err)
	}
	asOrdinaryUser(t, func() {
		_, err := l.enterGuard(t.Context(), "test", path, time.Hour)
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrPermission) || e.Path != path {
			t.Error(err)
		}
	})
	if err := os.Remove(guard); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	asOrdinaryUser(t, func() {
		if _, err := l.enterGuard(t.Context(), "test", path, time.Hour); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a guard that may not be made: %v", err)
		}
	})
}

func TestLockInADirectoryThatMayNotBeWrittenStays(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock := putLock(t, dir, "cache.lock", lockRecord(time.Minute, dead))
	if err := os.Chmod(lock, 0o444); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(lock)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	l, _ := remover(nil)
	asOrdinaryUser(t, func() {
		err := l.takeOver(t.Context(), l.Inspect(lock), time.Second)
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrPermission) || e.Path != lock {
			t.Error(err)
		}
	})
	if now, err := os.ReadFile(lock); err != nil || !bytes.Equal(now, data) || inDir(t, dir) != "cache.lock" {
		t.Errorf("left %q in %s (%v)", now, inDir(t, dir), err)
	}
	// Its token can no more be dropped than the lock removed, once the directory has been made read-only.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var log *bytes.Buffer
	l, log = remover(func(step, _ string) error {
		if step == "reread" {
			return os.Chmod(dir, 0o555)
		}
		return nil
	})
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	asOrdinaryUser(t, func() {
		err := l.takeOver(t.Context(), l.Inspect(lock), time.Second)
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrPermission) || e.Path != lock {
			t.Error(err)
		}
	})
	if !strings.Contains(log.String(), "left reclaim token behind") {
		t.Errorf("logged %q", log)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l.fault = nil
	if err := l.takeOver(t.Context(), l.Inspect(lock), time.Second); err != nil || inDir(t, dir) != "" {
		t.Errorf("the next attempt clears it: %v, left %s", err, inDir(t, dir))
	}
}

func TestDirectoryBehindALinkIsNotCleaned(t *testing.T) {
	base := t.TempDir()
	real := filepath.Join(base, "a", "b")
	if err := os.MkdirAll(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(base, "link") + "/../cache.lock" // lies in a, where cleaning would look beside it
	for what, l := range map[string]*Locker{"directory": {}, "file": besideGuards(&Locker{})} {
		g := enter(t, l, path)
		if _, err := l.enterGuard(t.Context(), "test", filepath.Join(base, "a", "cache.lock"), 0); !errors.Is(err, ErrBlocked) {
			t.Errorf("%s: %v", what, err)
		}
		g.leave()
	}
	if inDir(t, base) != "a link" {
		t.Errorf("made %s", inDir(t, base))
	}
}
