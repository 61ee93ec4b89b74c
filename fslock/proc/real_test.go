package proc_test

import (
	"testing"

	"holdfast/fslock/proc"
)

// What every platform can tell: a process lives while it lives, and is not called alive when it is gone.
func TestLiveAndKilledProcess(t *testing.T) {
	c := start(t, "live", nil)
	var self proc.Self
	c.hear(t, &self)
	for name, id := range recorded(self) {
		if f := proc.Local().Judge(id); f.Answer != proc.Alive || f.PID != self.PID {
			t.Errorf("%s: got %+v", name, f)
		}
		if proc.Local().IsSelf(id) {
			t.Errorf("%s of another process is taken for ours", name)
		}
	}
	c.kill(t)
	for name, id := range recorded(self) {
		eventually(t, name+" is not alive", func() bool { return proc.Local().Judge(id).Answer != proc.Alive })
	}
}
