package proc_test

import (
	"os/exec"
	"syscall"
	"testing"

	"holdfast/fslock/proc"
)

func TestGroupOfADeadProcessThatNobodyAskedHasEnded(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	if proc.GroupEnded(group) {
		t.Error("it runs")
	}
	_ = stdin.Close()
	eventually(t, "its group has ended", func() bool { return proc.GroupEnded(group) }) // a zombie by then
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if proc.GroupEnded(group) {
		t.Error("nothing is left to have ended")
	}
}
