package proc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"holdfast/fslock/proc"
)

func namespaces(t *testing.T, flags ...string) []string {
	t.Helper()
	wrap := append([]string{"unshare"}, flags...)
	if os.Getuid() != 0 {
		wrap = append(wrap, "-r")
	}
	if out, err := exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		unable(t, "%s: %v: %s", strings.Join(wrap, " "), err, out)
	}
	return wrap
}

func TestSandboxSeenFromOutside(t *testing.T) {
	initial(t)
	c := start(t, "live", namespaces(t, "-p", "-f", "--mount-proc", "--kill-child"))
	var self proc.Self
	c.hear(t, &self)
	if self.InitialNS || self.PID != 1 {
		t.Fatalf("the sandbox is none: %+v", self)
	}
	records := recorded(self)
	var outer int
	for _, name := range []string{"lock", "lease", "ours"} {
		f := judge(t, records[name], proc.Alive, "")
		if f.PID <= 1 || f.Legacy || f.ClockStep {
			t.Errorf("%s: got %+v", name, f)
		}
		outer = f.PID
	}
	foreign := records["ours"]
	foreign.PidfdIno = 0
	if f := judge(t, foreign, proc.Alive, ""); f.PID != outer {
		t.Errorf("without a pidfd: got %+v", f)
	}
	signal(t, outer, syscall.SIGSTOP)
	for _, name := range []string{"lock", "lease", "ours"} {
		eventually(t, name+" stops", func() bool {
			f := proc.Local().Judge(records[name])
			return f.Answer == proc.Alive && f.Condition == proc.Stopped
		})
	}
	signal(t, outer, syscall.SIGKILL)
	_ = c.Wait()
	// Pid 1 is another's here; what is recorded in a namespace that is gone cannot be proven dead.
	judge(t, records["lock"], proc.Dead, proc.Recycled)
	judge(t, records["ours"], proc.Unknown, "")
}

func TestInnerPIDThatNobodyHasHere(t *testing.T) {
	initial(t)
	var free int
	for free = 30_000; !errors.Is(syscall.Kill(free, 0), syscall.ESRCH); free++ {
	}
	wrap := append(namespaces(t, "-p", "-f", "--mount-proc", "--kill-child"), "sh", "-c",
		fmt.Sprintf(`echo %d > /proc/sys/kernel/ns_last_pid; "$0"; true`, free-1))
	c := start(t, "live", wrap)
	var self proc.Self
	c.hear(t, &self)
	if self.PID != free {
		unable(t, "pids cannot be chosen in a pid namespace: got %d", self.PID)
	}
	records := recorded(self)
	for _, name := range []string{"lock", "lease", "ours"} {
		if f := judge(t, records[name], proc.Alive, ""); f.Legacy || f.Occupant.PID != 0 {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	judge(t, records["old lock"], proc.Unknown, "")
	outer := proc.Local().Judge(records["lock"]).PID
	signal(t, outer, syscall.SIGKILL)
	for _, name := range []string{"lock", "lease", "old lock"} {
		eventually(t, name+" is gone", func() bool { return proc.Local().Judge(records[name]).Cause == proc.Gone })
	}
}

// judgedBy lets a helper in other namespaces judge.
func judgedBy(t *testing.T, part string, wrap []string, id proc.Identity, more ...string) proc.Finding {
	t.Helper()
	record, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, part, wrap, append([]string{string(record)}, more...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var f proc.Finding
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return f
}

func TestOuterProcessSeenFromInside(t *testing.T) {
	for _, flags := range [][]string{{"-p", "-f", "--mount-proc"}, {"-p", "-f"}} { // the latter sees the outer /proc
		wrap := namespaces(t, flags...)
		c := start(t, "live", nil)
		var self proc.Self
		c.hear(t, &self)
		for name, id := range recorded(self) {
			if f := judgedBy(t, "judge", wrap, id); f.Answer != proc.Unknown || f.Why == "" {
				t.Errorf("%v, running, %s: got %+v", flags, name, f)
			}
		}
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for name, id := range recorded(self) {
			if f := judgedBy(t, "judge", wrap, id); f.Answer != proc.Unknown {
				t.Errorf("%v, stopped, %s: got %+v", flags, name, f)
			}
			// Its pid is that of the judge itself there.
			id.PID, id.PidfdIno = 1, 0
			if f := judgedBy(t, "judge", wrap, id); f.Answer == proc.Dead {
				t.Errorf("%v, its pid is another's, %s: got %+v", flags, name, f)
			}
		}
	}
}

func TestAbsentInsideASandbox(t *testing.T) {
	out, err := command(t, "judge absent", namespaces(t, "-p", "-f", "--mount-proc")).Output()
	var findings [2]proc.Finding
	if err == nil {
		err = json.Unmarshal(out, &findings)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if f := findings[0]; f.Answer != proc.Dead || f.Cause != proc.Gone {
		t.Errorf("recorded in that very namespace: got %+v", f)
	}
	if f := findings[1]; f.Answer != proc.Unknown {
		t.Errorf("recorded who knows where: got %+v", f)
	}
}

func TestTimeNamespace(t *testing.T) {
	initial(t)
	c := start(t, "live", namespaces(t, "-T", "--boottime", "100000", "-f", "--kill-child"))
	var self proc.Self
	c.hear(t, &self)
	here := proc.Local().Self()
	if self.TimeNS == here.TimeNS || self.StartTicks < here.StartTicks+90_000*100 {
		t.Fatalf("no time namespace: %+v", self)
	}
	records := recorded(self)
	if f := judge(t, records["lock"], proc.Alive, ""); !f.Legacy {
		t.Errorf("its ticks count from another moment: got %+v", f)
	}
	if f := judge(t, records["lease"], proc.Alive, ""); f.Legacy || f.ClockStep {
		t.Errorf("its start in seconds is the same everywhere: got %+v", f)
	}
	if f := judge(t, records["ours"], proc.Alive, ""); f.Legacy || f.ClockStep {
		t.Errorf("its start in seconds is the same everywhere: got %+v", f)
	}
	// The other way round: they judge us.
	wrap := namespaces(t, "-T", "--boottime", "100000", "-f")
	for name, id := range recorded(here) {
		if f := judgedBy(t, "judge", wrap, id); f.Answer != proc.Alive {
			t.Errorf("%s, judged from there: got %+v", name, f)
		}
	}
	c.kill(t)
	for _, id := range records {
		eventually(t, "it is dead", func() bool { return proc.Local().Judge(id).Cause == proc.Gone })
	}
}

func TestSandboxWithItsOwnClockIsNotCalledDead(t *testing.T) {
	initial(t)
	c := start(t, "live", namespaces(t, "-T", "--boottime", "100000", "-p", "-f", "--mount-proc", "--kill-child"))
	var self proc.Self
	c.hear(t, &self)
	for name, id := range recorded(self) {
		if f := proc.Local().Judge(id); f.Answer == proc.Dead {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

func TestHiddenProcess(t *testing.T) {
	if os.Getuid() != 0 {
		unable(t, "only root mounts a /proc that hides")
	}
	wrap := namespaces(t, "-m", "--propagation", "private")
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	records := recorded(self)
	for _, mode := range []string{"1", "2", "4"} {
		for name, id := range records {
			f := judgedBy(t, "hidden judge", wrap, id, mode)
			if f.Answer != proc.Alive || f.PID != self.PID || !f.Under.Exists || f.Under.Readable {
				t.Errorf("hidepid=%s, %s: got %+v", mode, name, f)
			}
			if f.Legacy == (name == "ours" && self.PidfdIno != 0) {
				t.Errorf("hidepid=%s, %s: only a pidfd proves a hidden process: got %+v", mode, name, f)
			}
		}
	}
	c.kill(t)
	for name, id := range records {
		f := judgedBy(t, "hidden judge", wrap, id, "2")
		want := proc.Unknown
		if name == "ours" {
			want = proc.Dead // of our own pid namespace, and kill says that it is gone
		}
		if f.Answer != want {
			t.Errorf("killed, %s: got %+v", name, f)
		}
	}
}
