package demo

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/verdict"
	"holdfast/lease"
)

// alive is a process as it was seen: its pid, start time and state.
type alive struct {
	pid, parent int
	state       byte
	start       string
}

// processes returns every process that can be seen, but for zombies that wait for the first process: whose parent
// died is reaped by that, and some containers have one that never does.
func processes(t *testing.T) map[int]alive {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]alive{}
	for _, stat := range stats {
		data, err := os.ReadFile(stat)
		if err != nil {
			continue // gone meanwhile
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		if fields[0] == "Z" && parent == 1 {
			continue
		}
		all[pid] = alive{pid, parent, fields[0][0], fields[19]}
	}
	return all
}

// family returns all descendants of a process, zombies included.
func family(t *testing.T, ancestor int) []alive {
	t.Helper()
	all := processes(t)
	var found []alive
	for _, p := range all {
		for q, ok := p, true; ok; q, ok = all[q.parent] {
			if q.parent == ancestor {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// gone waits until none of the processes is there any more.
func gone(t *testing.T, them []alive) {
	t.Helper()
	within(t, 20*time.Second, "an end of all processes", func() bool {
		all := processes(t)
		for _, p := range them {
			if all[p.pid].start == p.start {
				return false
			}
		}
		return true
	})
}

func states(them []alive) string {
	var s []byte
	for _, p := range them {
		s = append(s, p.state)
	}
	return string(s)
}

func TestCloseLeavesNoProcessAndNoDirectory(t *testing.T) {
	p := start(t)
	them := family(t, os.Getpid())
	if s := states(them); strings.Count(s, "T") != 2 || strings.Count(s, "Z") != 1 {
		t.Errorf("processes are %s; want two stopped and one zombie", s)
	}
	info, err := os.Stat(p.Root())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v, want mode 0700", info, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if left := family(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	gone(t, them)
}

func TestNothingIsLeftWhenTheWholeProgramIsKilled(t *testing.T) {
	emptyTemp(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), parent+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	root, err := bufio.NewReader(out).ReadString('\n')
	root = strings.TrimSpace(root)
	if err != nil || !filepath.IsAbs(root) {
		t.Fatalf("%q %v", root, err)
	}
	them := family(t, cmd.Process.Pid)
	if len(them) < 10 {
		t.Errorf("only %d processes", len(them))
	}
	// As ^C does it, only harder: the whole process group of the program.
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, them)
	within(t, 20*time.Second, "the directory removed", func() bool {
		_, err := os.Lstat(root)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestNothingIsLeftWhenTheKeeperIsKilled(t *testing.T) {
	p := start(t)
	them := family(t, os.Getpid())
	if err := p.keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, them)
}

func TestAStoppedKeeperDoesNotKeepUsFromEnding(t *testing.T) {
	p := start(t)
	p.grace = time.Second
	them := family(t, os.Getpid())
	if err := p.keeper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, them)
}

func TestAKeeperThatIsAskedToEndCleansUp(t *testing.T) {
	p := start(t)
	them := family(t, os.Getpid())
	if err := p.keeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "the directory removed", func() bool {
		_, err := os.Lstat(p.Root())
		return errors.Is(err, fs.ErrNotExist)
	})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, them)
}

func TestAHolderThatIsKilledIsReaped(t *testing.T) {
	p := start(t, "live")
	locker := &fslock.Locker{}
	path := lockPath(p.Root(), "live")
	if err := syscall.Kill(int(locker.Inspect(path).Facts.Record.PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "gone, no zombie", func() bool {
		v := locker.Inspect(path).Verdict
		return v.State == verdict.Dead && v.Cause == "gone"
	})
}

func TestStoppedHoldersGoOnWhenContinued(t *testing.T) {
	p := start(t, "stopped", "inside")
	store := &lease.Store{Dir: filepath.Join(p.Root(), leasesDir)}
	for _, q := range family(t, os.Getpid()) {
		if q.state == 'T' {
			if err := syscall.Kill(q.pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	within(t, 20*time.Second, "a live lock and lease, and a lease that can be claimed", func() bool {
		l, err := store.Inspect(leaseID("stopped"))
		k := (&fslock.Locker{}).Inspect(lockPath(p.Root(), "stopped"))
		in, ierr := store.Inspect(leaseID("inside"))
		return err == nil && ierr == nil && l.Verdict.State == verdict.Live && k.Verdict.State == verdict.Live &&
			in.Verdict.Claimable.When == verdict.Now
	})
}
