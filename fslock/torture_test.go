//go:build linux

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Real processes take one lock while they are killed and stopped at random. The long form, 20,000 holds by 8 processes and
// 2,000 kills with each guard, takes some minutes:
//
//	HOLDFAST_TORTURE=long go test ./fslock -run Torture -timeout 1h

// victimEnv makes the test binary one of the processes, and tells it "MODE GUARD DIR".
const victimEnv = "FSLOCK_TORTURE_VICTIM"

// What a process does to get the lock.
var victimModes = []string{"wait", "try", "hurry"}

func TestTortureVictim(t *testing.T) {
	order := os.Getenv(victimEnv)
	if order == "" {
		return // it is run by the others only
	}
	part := strings.SplitN(order, " ", 3)
	v := &victim{mode: part[0], dir: part[2]}
	if part[1] == "file" {
		v.locker.local = func(string) (string, bool) { return "made up", false }
	}
	if err := v.work(); err != nil {
		t.Fatal(err)
	}
}

func TestTorture(t *testing.T) {
	processes, holds, kills := 4, 250, 20
	if os.Getenv("HOLDFAST_TORTURE") == "long" {
		processes, holds, kills = 8, 20_000, 2_000
	}
	for _, guard := range []string{"directory", "file"} {
		t.Run(guard, func(t *testing.T) { torture(t, guard, processes, holds, kills) })
	}
}

// victim is one process that takes the lock again and again, and counts its holds under it.
type victim struct {
	mode, dir string
	locker    Locker
	made      int
}

func (v *victim) file(name string) string { return filepath.Join(v.dir, name) }

func (v *victim) work() error {
	for {
		if _, err := os.Stat(v.file("stop")); err == nil {
			return nil
		}
		lock, err := v.take()
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		if err := v.hold(); err != nil {
			return v.cry(err)
		}
		if err := lock.Verify(); err != nil {
			return v.cry(err)
		}
		if err := lock.Release(); err != nil {
			return v.cry(err)
		}
	}
}

// cry tells of a fault in a way that outlives the process.
func (v *victim) cry(err error) error {
	f, ferr := os.OpenFile(v.file("faults"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if ferr != nil {
		return errors.Join(err, ferr)
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, "pid %d, %s: %v\n", os.Getpid(), v.mode, err)
	return err
}

// take returns nil when it did not get the lock, which it may not.
func (v *victim) take() (lock *Lock, err error) {
	path := v.file("locks/cache.lock")
	switch v.mode {
	case "wait":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if lock, err = v.locker.Acquire(ctx, path); err != nil {
			return nil, v.cry(err)
		}
		return lock, nil
	case "try":
		lock, err = v.locker.TryAcquire(path)
	default:
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(20*time.Millisecond))
		defer cancel()
		lock, err = v.locker.Acquire(ctx, path)
	}
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, ErrHeld), errors.Is(err, ErrBlocked), errors.Is(err, ErrChanged), errors.Is(err, context.DeadlineExceeded):
		time.Sleep(rand.N(2 * time.Millisecond))
		return nil, nil
	default:
		return nil, v.cry(err)
	}
}

// hold counts. A marker tells who is inside, and what the count was, so that the next one can tell a hold that a kill
// has ended from one that goes on. Errors are two processes inside at once.
func (v *victim) hold() error {
	marker, mine := v.file("inside"), v.file(fmt.Sprintf("mark.%d", os.Getpid()))
	last, err := v.count()
	if err != nil {
		return err
	}
	if last, err = v.mend(marker, last); err != nil {
		return err
	}
	v.made++
	_, ticks, err := processState(os.Getpid())
	if err != nil {
		return err
	}
	told := fmt.Sprintf("%d %s %d %d", os.Getpid(), ticks, last, v.made)
	if err := os.WriteFile(mine, []byte(told), 0o600); err != nil {
		return err
	}
	err = os.Link(mine, marker)
	_ = os.Remove(mine)
	if err != nil {
		return fmt.Errorf("somebody came in after the look: %w", err)
	}
	if rand.N(4) == 0 {
		time.Sleep(rand.N(2 * time.Millisecond))
	}
	switch now, err := v.count(); {
	case err != nil:
		return err
	case now != last:
		return fmt.Errorf("the count went from %d to %d", last, now)
	}
	if err := os.WriteFile(v.file("count.new"), fmt.Append(nil, last+1), 0o600); err != nil {
		return err
	}
	if err := os.Rename(v.file("count.new"), v.file("count")); err != nil {
		return err
	}
	if err := v.enter(last+1, told); err != nil {
		return err
	}
	switch data, err := os.ReadFile(marker); {
	case err != nil:
		return err
	case string(data) != told:
		return fmt.Errorf("%q is inside, too", data)
	}
	return os.Remove(marker)
}

func (v *victim) count() (int, error) {
	data, err := os.ReadFile(v.file("count"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data))
}

// enter writes one line into the book.
func (v *victim) enter(n int, who string) error {
	f, err := os.OpenFile(v.file("book"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%d: %s\n", n, who)
	return err
}

// mend ends the hold of a process that was killed in it, and returns the count.
func (v *victim) mend(marker string, last int) (int, error) {
	data, err := os.ReadFile(marker)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return 0, err
	}
	var pid, before, made int
	var ticks string
	if _, err := fmt.Sscan(string(data), &pid, &ticks, &before, &made); err != nil {
		return 0, fmt.Errorf("marker %q: %w", data, err)
	}
	if state, now, err := processState(pid); err == nil && now == ticks && state != "Z" && state != "X" {
		return 0, fmt.Errorf("pid %d is inside, in state %s", pid, state)
	}
	book, err := os.ReadFile(v.file("book"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	lines := bytes.Count(book, []byte("\n"))
	switch {
	case last == before && lines == before, last == before+1 && lines == last:
	case last == before+1 && lines == before:
		if err := v.enter(last, string(data)); err != nil {
			return 0, err
		}
	default:
		return 0, fmt.Errorf("the dead pid %d began at %d; the count is %d, the book has %d", pid, before, last, lines)
	}
	return last, os.Remove(marker)
}

// processState returns the state and the start of a process, as /proc tells them.
func processState(pid int) (state, ticks string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return fields[0], fields[19], nil
}

// torturer keeps the processes going, and kills and stops them.
type torturer struct {
	t          *testing.T
	dir, guard string
	exe        string

	mu      sync.Mutex
	ended   sync.WaitGroup
	running map[*exec.Cmd]string // with the mode
	killed  map[int]bool
	over    bool
}

func (to *torturer) start(mode string) {
	cmd := exec.Command(to.exe, "-test.run=^TestTortureVictim$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", victimEnv, mode, to.guard, to.dir))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		to.t.Error(err)
		return
	}
	to.mu.Lock()
	to.running[cmd] = mode
	to.mu.Unlock()
	to.ended.Go(func() {
		err := cmd.Wait()
		to.mu.Lock()
		delete(to.running, cmd)
		killed, over := to.killed[cmd.Process.Pid], to.over
		to.mu.Unlock()
		if err != nil && !killed {
			to.t.Errorf("%s ended by itself: %v\n%s", mode, err, out)
			return
		}
		if !over && killed {
			to.start(mode)
		}
	})
}

// one picks a process; nil: none runs at the moment.
func (to *torturer) one() *exec.Cmd {
	to.mu.Lock()
	defer to.mu.Unlock()
	for cmd := range to.running { // in no order
		if !to.killed[cmd.Process.Pid] {
			return cmd
		}
	}
	return nil
}

func (to *torturer) kill(cmd *exec.Cmd) {
	to.mu.Lock()
	to.killed[cmd.Process.Pid] = true
	to.mu.Unlock()
	_ = cmd.Process.Kill()
}

func torture(t *testing.T, guard string, processes, holds, kills int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o755); err != nil {
		t.Fatal(err)
	}
	to := &torturer{t: t, dir: dir, guard: guard, exe: exe, running: make(map[*exec.Cmd]string), killed: make(map[int]bool)}
	for i := range processes {
		to.start(victimModes[i%len(victimModes)])
	}
	v := &victim{dir: dir}
	faults := func() string {
		data, _ := os.ReadFile(v.file("faults"))
		return string(data)
	}
	limit := time.Now().Add(time.Minute + time.Duration(holds)*80*time.Millisecond)
	for n := 0; (n < holds || len(to.killed) < kills) && faults() == "" && !t.Failed(); n, _ = v.count() {
		if time.Now().After(limit) {
			t.Errorf("only %d holds and %d kills", n, len(to.killed))
			break
		}
		pause := 20 * time.Millisecond
		if len(to.killed) >= kills {
			pause *= 10 // who is killed too soon counts nothing
		}
		time.Sleep(rand.N(pause))
		cmd := to.one()
		if cmd == nil {
			continue
		}
		if rand.N(2) == 0 {
			to.kill(cmd)
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(rand.N(30 * time.Millisecond))
		if rand.N(4) == 0 {
			to.kill(cmd) // a stopped one dies, too
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	to.mu.Lock()
	to.over = true
	to.mu.Unlock()
	if err := os.WriteFile(v.file("stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	to.ended.Wait()
	if f := faults(); f != "" {
		t.Fatalf("not one at a time:\n%s", f)
	}
	to.audit(v)
}

// audit looks at what they have left.
func (to *torturer) audit(v *victim) {
	t := to.t
	t.Helper()
	last, err := v.count()
	if err == nil {
		last, err = v.mend(v.file("inside"), last)
	}
	if err != nil {
		t.Error(err)
	}
	book, err := os.ReadFile(v.file("book"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(book), "\n"), "\n")
	if len(lines) != last {
		t.Errorf("counted to %d, and %d are in the book", last, len(lines))
	}
	seen := make(map[string]bool)
	for i, line := range lines {
		n, who, _ := strings.Cut(line, ": ")
		if n != fmt.Sprint(i+1) || seen[who] {
			t.Errorf("line %d of the book: %q", i+1, line)
		}
		seen[who] = true
	}
	t.Logf("%d holds, %d killed", last, len(to.killed))

	l := &Locker{}
	if to.guard == "file" {
		l.local = func(string) (string, bool) { return "made up", false }
	}
	path := v.file("locks/cache.lock")
	lock, err := l.TryAcquire(path)
	if err != nil {
		t.Fatalf("nobody lives, and still: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		at := filepath.Join(filepath.Dir(path), e.Name())
		_, token := record.ParseToken(e.Name())
		_, pid, temp := record.ParseTemp(e.Name())
		switch {
		case token:
			if v := l.InspectToken(at).Verdict; v.State != verdict.Dead {
				t.Errorf("token %s is left: %v", e.Name(), v.Sentence)
			}
		case temp:
			v := l.InspectTemp(at)
			// Where other machines write, the name of one that was never written proves nothing.
			proven := v.Verdict.State == verdict.Litter || to.guard == "file" && v.Facts.Record == nil
			if !to.killed[int(pid)] || !proven {
				t.Errorf("temp %s is left, of a killed process %v: %v", e.Name(), to.killed[int(pid)], v.Verdict.Sentence)
			}
		case to.guard == "file" && e.Name() == guardName("cache.lock"):
		default:
			t.Errorf("%s is left", e.Name())
		}
	}
}
