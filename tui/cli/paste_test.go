package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// pasted runs a command line that the program printed, as a person would paste it into a shell.
func pasted(t *testing.T, state, command string) (code int, out string) {
	t.Helper()
	bash, err := exec.LookPath("bash") // which has the quotes that a command may be in
	if err != nil {
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, "-c", strings.Replace(command, "TEXT", "why", 1))
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state, "LC_ALL=C")
	var o strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &o
	code = codeOf(cmd)
	return code, o.String()
}

// line is what a plan says under that head.
func line(out, head string) string {
	found := regexp.MustCompile(`(?m)^  ` + head + ` +(.*)$`).FindStringSubmatch(out)
	if found == nil {
		return ""
	}
	return found[1]
}

// What a plan tells to run does that, whatever names and nonces are made of, on a terminal that shows nothing but ASCII.
func TestPrintedCommandsWork(t *testing.T) {
	self, pid := proc.Local().Self(), deadPID(t)
	for _, c := range []struct{ name, nonce string }{
		{"plain", "w-1"}, {"-dash", "-w"}, {"ünï \u202e", "wü"}, {"\xe9a0'!\t", "w\n'"}, {"zero", "w\x00x"}, {"a -- '-b", "it's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, state := t.TempDir(), t.TempDir()
			leases := filepath.Join(root, "leases")
			if err := os.Mkdir(leases, 0o755); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(root, c.name+".lock")
			lock(t, file, c.nonce, pid, self.Host, time.Second)
			id := filepath.Join(leases, strings.ReplaceAll(strings.ReplaceAll(c.name, "\xe9", "e"), "\t", " "))
			l := record.Lease{InstanceID: c.name, PID: uint32(self.PID), Hostname: strings.ToLower(self.Host), ClaimID: c.nonce, Epoch: 5}
			l.AcquiredAtMS = time.Now().UnixMilli()
			l.RenewedAtMS, l.PIDStartS = l.AcquiredAtMS, self.StartUnix
			if err := os.WriteFile(id+".lease.json", l.Encode(), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(id+".epoch", []byte("5\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for path, args := range map[string][]string{
				file: {"break", "--ascii", file}, id + ".lease.json": {"break", "--ascii", "--root", root, "--", filepath.Base(id)},
			} {
				code, out, complaint := ends(t, state, args...)
				if code != 2 {
					t.Fatalf("%q: exit code %d: %s%s", args, code, out, complaint)
				}
				run, undo := line(out, "run"), line(out, "undo")
				if run == "" || undo == "" {
					t.Fatalf("%q: %s%s", args, out, complaint)
				}
				if code, out := pasted(t, state, run); code != 0 {
					t.Errorf("%s: exit code %d: %s", run, code, out)
				}
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s: it is there: %v", run, err)
				}
				if code, out := pasted(t, state, undo); code != 0 {
					t.Errorf("%s: exit code %d: %s", undo, code, out)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("%s: it is not back: %v", undo, err)
				}
			}
			// What why advises for a lease that is free, pasted after it.
			if err := os.Remove(id + ".lease.json"); err != nil {
				t.Fatal(err)
			}
			_, out, _ := ends(t, state, "why", "--ascii", "--root", root, "--", filepath.Base(id))
			next := strings.Replace(line(out, "next"), "--hold", "--for 1ms", 1)
			if code, out := pasted(t, state, next); code != 0 || !strings.Contains(out, "epoch 6") {
				t.Errorf("%s: exit code %d: %s", next, code, out)
			}
		})
	}
}

// Several people put the same thing back at once: one does, the others are told that it is back, whether or not somebody
// has it then.
func TestOneOfManyPutsItBack(t *testing.T) {
	root, state := t.TempDir(), t.TempDir()
	self := proc.Local().Self()
	file := filepath.Join(root, "a.lock")
	held := filepath.Join(t.TempDir(), "x.lease.json")
	for range 5 {
		lock(t, file, "w", deadPID(t), self.Host, time.Second)
		l := record.Lease{InstanceID: "x", PID: uint32(self.PID), Hostname: strings.ToLower(self.Host), ClaimID: "w", PIDStartS: self.StartUnix}
		l.RenewedAtMS = time.Now().UnixMilli()
		if err := os.WriteFile(held, l.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, held} {
			if code, out, complaint := ends(t, state, "break", path, "--expect", "w", "--force", "--reason", "why"); code != 0 {
				t.Fatalf("exit code %d: %s%s", code, out, complaint)
			}
			type end struct {
				code      int
				complaint string
			}
			codes := make(chan end)
			for range 4 {
				go func() {
					cmd := exec.CommandContext(t.Context(), "holdfast", "break", path, "--undo")
					cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
					var complaint strings.Builder
					cmd.Stderr = &complaint
					code := codeOf(cmd)
					codes <- end{code, complaint.String()}
				}()
			}
			done := 0
			for range 4 {
				switch e := <-codes; {
				case e.code == 0:
					done++
				case e.code != 6 || !strings.Contains(e.complaint, "already put back"):
					t.Errorf("exit code %d: %s", e.code, e.complaint)
				}
			}
			if _, err := os.Lstat(path); done != 1 || err != nil {
				t.Errorf("%d put %s back: %v", done, path, err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}
