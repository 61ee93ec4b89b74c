package proc_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
)

// platformHelpers are the parts that only Linux can play.
func platformHelpers() map[string]func(args []string) error {
	return map[string]func(args []string) error{
		leaderExits: func([]string) error {
			if err := tell(proc.Local().Self()); err != nil {
				return err
			}
			go func() {
				_ = untilEOF()
				os.Exit(0)
			}()
			exitMainThread()
			return nil
		},
		"thread": func([]string) error {
			tid := make(chan int)
			go tellThread(tid)
			if err := tell(<-tid); err != nil {
				return err
			}
			return untilEOF()
		},
		"hidden judge":     hiddenJudge,
		"judge absent":     judgeAbsent,
		"flock and leave":  flockAndLeave,
		"wait for a flock": waitForFlock,
	}
}

// tellThread sends the number of a thread that is not the main one and lives on.
func tellThread(tid chan<- int) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go tellThread(tid) // on another thread, as this one is taken
	} else {
		tid <- unix.Gettid()
	}
	select {}
}

// hiddenJudge mounts a /proc that hides others and judges as somebody without rights.
func hiddenJudge(args []string) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, "hidepid="+args[1]); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	cmd := exec.Command("/proc/self/exe", args[0])
	cmd.Env = append(os.Environ(), helperEnv+"=judge")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd.Run()
}

// judgeAbsent judges records of a pid that nobody has, with our own pid namespace in them and without.
func judgeAbsent([]string) error {
	var findings [2]proc.Finding
	id := recorded(proc.Local().Self())["ours"]
	id.PID, id.PidfdIno = 4242, 0
	findings[0] = proc.Local().Judge(id)
	id.PIDNS = 0
	findings[1] = proc.Local().Judge(id)
	return tell(findings)
}

// leaderExits is the part whose main thread ends before its others.
const leaderExits = "leader exits"

// A thread that is locked while packages are initialised is the main one, and stays the one of the main goroutine.
func init() { //nolint:gochecknoinits // there is no other moment for it
	if os.Getenv(helperEnv) == leaderExits {
		runtime.LockOSThread()
	}
}

// exitMainThread ends the main thread alone, on which it must run; the process goes on without it.
func exitMainThread() {
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// unable skips a test that this machine cannot run; HOLDFAST_STRICT=1 fails it instead.
func unable(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("HOLDFAST_STRICT") == "1" {
		tb.Fatalf(format, args...)
	}
	tb.Skipf(format, args...)
}

// judge wants one answer for a record and returns it.
func judge(t *testing.T, id proc.Identity, answer proc.Liveness, cause proc.Cause) proc.Finding {
	t.Helper()
	f := proc.Local().Judge(id)
	if f.Answer != answer || f.Cause != cause {
		t.Errorf("want %s %s, got %+v", answer, cause, f)
	}
	checkEvidence(t, f)
	return f
}

// initial skips where only the initial pid namespace can prove an absence, or somebody hides processes.
func initial(t *testing.T) {
	t.Helper()
	if !proc.Local().Self().InitialNS {
		unable(t, "not in the initial pid namespace")
	}
	probe := proc.Identity{PID: 1<<22 - 1, Host: proc.Local().Self().Host} // over pid_max's default by far
	if f := proc.Local().Judge(probe); f.Answer != proc.Dead {
		unable(t, "an absence cannot be proven here: %s", f.Why)
	}
}

// signal refuses what would reach the process group of the test, or everybody.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to signal: %d", pid)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

func TestSelf(t *testing.T) {
	self := proc.Local().Self()
	if self.PID != os.Getpid() || self.Host == "" || self.BootID == "" || self.PIDNS == 0 || self.StartTicks == 0 ||
		self.UID != os.Getuid() || self.User == "" {
		t.Fatalf("got %+v", self)
	}
	if first, second := proc.Local(), proc.Local(); first != second {
		t.Error("the identity is read at every call")
	}
	var btime, start uint64
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), "\nbtime ")
	_, _ = fmt.Sscan(after, &btime)
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	start, err = strconv.ParseUint(strings.Fields(string(own[strings.LastIndex(string(own), ")"):]))[20], 10, 64)
	if err != nil || self.StartTicks != start {
		t.Errorf("start is %d, want %d, %v", self.StartTicks, start, err)
	}
	if self.StartUnix != btime+start/100 {
		t.Errorf("start in seconds is %d, AgentMux reckons %d", self.StartUnix, btime+start/100)
	}
	if got := proc.Local().BootTime(); got.Unix() != int64(btime) {
		t.Errorf("boot time is %v, want %v", got, time.Unix(int64(btime), 0))
	}
	for name, id := range recorded(self) {
		f := judge(t, id, proc.Alive, "")
		if f.PID != self.PID || f.Machine != proc.Here || f.Legacy != (name == "old lock") || f.ClockStep {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

func TestSinceBootRunsOn(t *testing.T) {
	before := proc.SinceBoot()
	eventually(t, "the clock goes on", func() bool { return proc.SinceBoot() > before })
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if up := time.Duration(info.Uptime) * time.Second; proc.SinceBoot() < up-2*time.Second || proc.SinceBoot() > up+time.Minute {
		t.Errorf("%v since boot, the kernel is up %v", proc.SinceBoot(), up)
	}
}

func TestKilledStoppedAndExitedProcesses(t *testing.T) {
	initial(t)
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	records := recorded(self)
	each := func(state string, check func(name string, id proc.Identity)) {
		for name, id := range records {
			t.Run(state+", "+name, func(*testing.T) { check(name, id) })
		}
	}
	each("running", func(_ string, id proc.Identity) {
		if f := judge(t, id, proc.Alive, ""); f.Condition != proc.Running || f.Occupant.Started.IsZero() {
			t.Errorf("got %+v", f)
		}
	})
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it stops", func() bool { return proc.Local().Judge(records["lock"]).Condition == proc.Stopped })
	each("stopped", func(_ string, id proc.Identity) {
		if f := judge(t, id, proc.Alive, ""); f.Condition != proc.Stopped {
			t.Errorf("got %+v", f)
		}
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it exits", func() bool { return proc.Local().Judge(records["lock"]).Answer == proc.Dead })
	each("zombie", func(_ string, id proc.Identity) {
		if f := judge(t, id, proc.Dead, proc.Zombie); f.Parent.PID != os.Getpid() || f.Parent.Name == "" {
			t.Errorf("got %+v", f)
		}
	})
	_ = c.Wait()
	each("reaped", func(_ string, id proc.Identity) {
		if f := judge(t, id, proc.Dead, proc.Gone); f.Occupant.PID != 0 {
			t.Errorf("got %+v", f)
		}
	})
}

func TestRecycledPID(t *testing.T) {
	initial(t)
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	records := recorded(self)
	lock, ours, lease := records["lock"], records["ours"], records["lease"]
	other := self.StartTicks + 1
	lock.StartTicks, ours.StartTicks = &other, &other
	ours.PidfdIno = 1 << 60
	lease.StartUnix -= 3600
	lease.LastBeat = time.Now().Add(-time.Hour)
	for name, id := range map[string]proc.Identity{"lock": lock, "ours": ours, "lease": lease} {
		if f := judge(t, id, proc.Dead, proc.Recycled); f.Occupant.PID != self.PID {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	lease.LastBeat = time.Now().Add(time.Second)
	if f := judge(t, lease, proc.Alive, ""); !f.ClockStep {
		t.Errorf("stepped clock: got %+v", f)
	}
}

func TestPidfdFindsTheHolder(t *testing.T) {
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	id := recorded(self)["ours"]
	wrong := self.StartTicks + 1
	id.StartTicks = &wrong
	f := proc.Local().Judge(id)
	for _, check := range f.Checks {
		if check.Name == "pidfd" && check.Skipped != "" {
			unable(t, "no pidfs: %s", check.Skipped)
		}
	}
	if f.Answer != proc.Alive || f.Legacy || f.PID != self.PID {
		t.Errorf("got %+v", f)
	}
	// A process that leaves its number to its process group still has a pidfd, but it is gone.
	script := exec.CommandContext(t.Context(), "sh", "-c", "read x; cat <&3 & exit 0")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	script.ExtraFiles = []*os.File{r}
	script.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := script.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	fd, err := unix.PidfdOpen(script.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	_ = unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = script.Wait()
	id = recorded(proc.Local().Self())["ours"]
	id.PID, id.PidfdIno, id.StartTicks, id.StartUnix = uint32(script.Process.Pid), st.Ino, &wrong, 0
	if f := judge(t, id, proc.Dead, proc.Gone); f.PID != 0 {
		t.Errorf("got %+v", f)
	}
}

func TestMainThreadExited(t *testing.T) {
	initial(t)
	c := start(t, leaderExits, nil)
	var self proc.Self
	c.hear(t, &self)
	status := fmt.Sprintf("/proc/%d/status", self.PID)
	eventually(t, "its main thread exits", func() bool {
		b, err := os.ReadFile(status)
		return err == nil && strings.Contains(string(b), "State:\tZ")
	})
	for name, id := range recorded(self) {
		if f := judge(t, id, proc.Alive, ""); f.Condition != proc.Running || f.PID != self.PID {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its threads stop", func() bool {
		f := proc.Local().Judge(recorded(self)["lock"])
		return f.Answer == proc.Alive && f.Condition == proc.Stopped
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its threads end", func() bool {
		return proc.Local().Judge(recorded(self)["lock"]).Cause == proc.Zombie
	})
}

func TestRecordedPIDIsAThread(t *testing.T) {
	initial(t)
	c := start(t, "thread", nil)
	var tid int
	c.hear(t, &tid)
	for name, id := range recorded(proc.Local().Self()) {
		id.PID, id.PidfdIno = uint32(tid), 1<<60
		if f := judge(t, id, proc.Dead, proc.Recycled); f.Occupant.PID != tid {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

func TestTracedProcess(t *testing.T) {
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := syscall.PtraceAttach(self.PID); err != nil {
		unable(t, "ptrace: %v", err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(self.PID, &status, syscall.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if f := judge(t, recorded(self)["lock"], proc.Alive, ""); f.Condition != proc.Traced {
		t.Errorf("got %+v", f)
	}
	if err := syscall.PtraceDetach(self.PID); err != nil {
		t.Fatal(err)
	}
}

func TestFrozenProcess(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		file, frozen, thawed := "freezer.state", "FROZEN", "THAWED"
		if strings.Contains(line, " - cgroup2 ") {
			file, frozen, thawed = "cgroup.freeze", "1", "0"
		} else if !strings.Contains(line, " - cgroup ") || !strings.Contains(line, ",freezer") {
			continue
		}
		dir := filepath.Join(f[4], fmt.Sprintf("holdfast-test-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Logf("%v", err)
			continue
		}
		defer func() { _ = os.Remove(dir) }()
		c := start(t, "live", nil)
		var self proc.Self
		c.hear(t, &self)
		write := func(file, text string) error { return os.WriteFile(filepath.Join(dir, file), []byte(text), 0) }
		if err := write("cgroup.procs", strconv.Itoa(self.PID)); err != nil {
			t.Logf("%v", err)
			continue
		}
		tried++
		defer func() { c.kill(t) }()
		if err := write(file, frozen); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it freezes", func() bool {
			return proc.Local().Judge(recorded(self)["lock"]).Condition == proc.Frozen
		})
		judge(t, recorded(self)["ours"], proc.Alive, "")
		if err := write(file, thawed); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it thaws", func() bool {
			return proc.Local().Judge(recorded(self)["lock"]).Condition == proc.Running
		})
	}
	if tried == 0 {
		unable(t, "no cgroup that can be frozen")
	}
}

func TestDescribe(t *testing.T) {
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	d, err := proc.Local().Describe(self.PID)
	if err != nil {
		t.Fatal(err)
	}
	if d.PID != self.PID || d.Name == "" || !strings.Contains(d.Command, d.Name) || d.User == "" || d.MemoryRSS == 0 ||
		d.Status == "" || len(d.Parents) == 0 || d.Parents[0].PID != os.Getpid() {
		t.Errorf("got %+v", d)
	}
	if d.Started.Unix() != int64(self.StartUnix) {
		t.Errorf("started %v, its record says %v", d.Started, self.StartUnix)
	}
	status := func() string {
		d, err := proc.Local().Describe(self.PID)
		if err != nil {
			t.Fatal(err)
		}
		return d.Status
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopped", func() bool { return status() == "stopped" })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is a zombie", func() bool { return status() == "zombie" })
	_ = c.Wait()
	for _, pid := range []int{self.PID, 0, -1, -1 << 31} {
		if d, err := proc.Local().Describe(pid); !errors.Is(err, proc.ErrNoProcess) || !reflect.DeepEqual(d, proc.Details{}) {
			t.Errorf("%d: got %+v, %v", pid, d, err)
		}
	}
}

func TestIsSelf(t *testing.T) {
	self := proc.Local().Self()
	for name, id := range recorded(self) {
		if got := proc.Local().IsSelf(id); got != (name != "old lock") {
			t.Errorf("%s: %v", name, got)
		}
	}
	c := start(t, "live", nil)
	var other proc.Self
	c.hear(t, &other)
	for name, id := range recorded(other) {
		if proc.Local().IsSelf(id) {
			t.Errorf("%s of another process", name)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	c := start(b, "live", nil)
	var self proc.Self
	c.hear(b, &self)
	for name, id := range recorded(self) {
		b.Run("live/"+strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				if proc.Local().Judge(id).Answer != proc.Alive {
					b.Fatal("not alive")
				}
			}
		})
	}
	absent := recorded(self)
	for _, name := range []string{"lock", "ours"} {
		id := absent[name]
		id.PID, id.PidfdIno = 1<<22-1, 0
		b.Run("gone/"+name, func(b *testing.B) {
			for b.Loop() {
				proc.Local().Judge(id)
			}
		})
	}
	b.Run("self", func(b *testing.B) {
		for b.Loop() {
			proc.Local().Self()
		}
	})
	b.Run("raw/open_read_close_stat", func(b *testing.B) {
		path, buf := fmt.Sprintf("/proc/%d/stat", self.PID), make([]byte, 2048)
		for b.Loop() {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = unix.Read(fd, buf)
			_ = unix.Close(fd)
		}
	})
}
