package proc_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/proc/proctest"
)

// descriptors are what this process has open of epolls and pidfds.
func descriptors(t *testing.T) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if what, err := os.Readlink(link); err == nil && (strings.Contains(what, "pidfd") || strings.Contains(what, "eventpoll")) {
			found = append(found, what)
		}
	}
	return found
}

// watching returns a Deaths and the pids of n processes that it may watch; skips where the system has no pidfds.
func watching(t *testing.T, n int) (*proc.Deaths, []*child) {
	t.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	_ = unix.Close(fd)
	var children []*child
	for range n {
		c := start(t, "live", nil)
		var self proc.Self
		c.hear(t, &self)
		children = append(children, c)
	}
	d := proc.Local().Deaths()
	t.Cleanup(d.Close)
	return d, children
}

func isTold(t *testing.T, d *proc.Deaths, want ...int) {
	t.Helper()
	slices.Sort(want)
	var got []int
	for deadline := time.After(20 * time.Second); len(got) < len(want); {
		select {
		case pids := <-d.Ended():
			got = append(got, pids...)
		case <-deadline:
			t.Fatalf("told of %v, not of %v", got, want)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Fatalf("told of %v, not of %v", got, want)
	}
}

func TestDeathsAreToldOnceAndOfNobodyElse(t *testing.T) {
	before := descriptors(t)
	d, c := watching(t, 4)
	pids := []int{c[0].Process.Pid, c[1].Process.Pid, c[2].Process.Pid, c[0].Process.Pid}
	if ended, left := d.Watch(pids); ended != nil || left != nil {
		t.Fatalf("all live and can be watched: got %v, %v", ended, left)
	}
	signal(t, c[0].Process.Pid, syscall.SIGKILL) // a zombie
	isTold(t, d, c[0].Process.Pid)
	c[1].kill(t) // reaped
	isTold(t, d, c[1].Process.Pid)

	// Those that are named again and again are not told again.
	if ended, left := d.Watch(pids[:3]); ended != nil || len(left) != 2 || slices.Contains(left, pids[2]) {
		t.Errorf("two have ended: got %v, %v", ended, left)
	}
	// Nobody who was told of before, and nobody that is no longer watched.
	d.Watch([]int{c[3].Process.Pid})
	c[2].kill(t)
	signal(t, c[3].Process.Pid, syscall.SIGKILL)
	isTold(t, d, c[3].Process.Pid)

	// Those that were not named once are asked for anew: the zombie has ended, of the reaped one nothing is left.
	d.Watch(nil)
	if ended, left := d.Watch(pids[:2]); !slices.Equal(ended, pids[1:2]) || left != nil {
		t.Errorf("a zombie and nobody: got %v, %v", ended, left)
	}
	isTold(t, d, pids[0])
	if _, left := d.Watch(pids[:2]); len(left) != 2 {
		t.Errorf("both have ended: left are %v", left)
	}
	for _, c := range []*child{c[0], c[3]} {
		c.kill(t) // os/exec has a descriptor for each that it has not reaped
	}
	d.Close()
	d.Close()
	if _, left := d.Watch(pids[:1]); !slices.Equal(left, pids[:1]) || d.Ended() != nil {
		t.Errorf("it is closed: left are %v", left)
	}
	if after := descriptors(t); len(after) != len(before) {
		t.Errorf("open is %v, was %v", after, before)
	}
}

func TestDeathsThatNobodyTakesDoNotHinderClose(t *testing.T) {
	routines, before := runtime.NumGoroutine(), descriptors(t)
	d, c := watching(t, 3)
	var pids []int
	for _, c := range c {
		pids = append(pids, c.Process.Pid)
	}
	d.Watch(pids)
	if open := descriptors(t); len(open) < len(before)+len(pids) {
		t.Errorf("three are watched through %v", open)
	}
	for _, c := range c[:2] {
		c.kill(t)
	}
	d.Close()
	c[2].kill(t)
	if after := descriptors(t); len(after) != len(before) {
		t.Errorf("open is %v, was %v", after, before)
	}
	eventually(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= routines })
}

func TestOneProcessOfWhichAThreadIsLeftHasNotEnded(t *testing.T) {
	d, c := watching(t, 1)
	self := start(t, leaderExits, nil)
	var who proc.Self
	self.hear(t, &who)
	d.Watch([]int{who.PID, c[0].Process.Pid})
	eventually(t, "its main thread has exited", func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(who.PID) + "/stat")
		return err == nil && strings.Contains(string(b), ") Z ")
	})
	c[0].kill(t)
	isTold(t, d, c[0].Process.Pid)
	self.kill(t)
	isTold(t, d, who.PID)
}

func TestDeathsBeyondTheLimitOfDescriptorsAreLeft(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few, c := watching(t, 4)
	set := func(cur uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: cur, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { set(old.Cur) })
	var pids []int
	for _, c := range c {
		pids = append(pids, c.Process.Pid)
	}
	proc.Limit(few, 3)
	if ended, left := few.Watch(pids); ended != nil || len(left) != 1 {
		t.Errorf("three can be watched: got %v, %v", ended, left)
	}
	c[0].kill(t)
	c[1].kill(t)
	eventually(t, "there is room", func() bool {
		select {
		case <-few.Ended():
		default:
		}
		_, left := few.Watch(pids[2:])
		return left == nil
	})

	// The table of descriptors is full.
	many := proc.Local().Deaths()
	defer many.Close()
	set(4)
	_, left := many.Watch(pids[2:])
	none := proc.Local().Deaths()
	set(old.Cur)
	if len(left) != 2 {
		t.Errorf("no descriptor is to be had: left are %v", left)
	}
	if _, left := none.Watch(pids[2:]); len(left) != 2 || none.Ended() != nil {
		t.Errorf("not even one: left are %v", left)
	}
	none.Close()
	if _, left := many.Watch(pids[2:]); left != nil {
		t.Errorf("there are some again: left are %v", left)
	}
}

func TestNoDeathsAreToldOfAMadeUpMachineAndOfNoPID(t *testing.T) {
	d := proctest.NewWorld(machine()).Table().Deaths()
	if _, left := d.Watch([]int{1, holderPID}); len(left) != 2 || d.Ended() != nil {
		t.Errorf("left are %v", left)
	}
	d.Close()
	d, _ = watching(t, 0)
	if ended, left := d.Watch([]int{0, -1}); ended != nil || len(left) != 2 {
		t.Errorf("got %v, %v", ended, left)
	}
}
