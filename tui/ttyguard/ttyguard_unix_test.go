//go:build unix

package ttyguard_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/charmbracelet/bubbletea"
	"github.com/creack/pty"

	"holdfast/tui/ttyguard"
)

// helper makes the test binary, which imports what the program imports, behave as a program on a terminal.
const helper = "HOLDFAST_TTYGUARD_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	guarded := os.Getenv("CI")
	ttyguard.Restore()
	ttyguard.Restore()
	ci, set := os.LookupEnv("CI")
	fmt.Printf("guarded %q, then %q %v\n", guarded, ci, set)
}

// The terminal is the controlling one and never answers: whoever asks it writes first and waits for seconds.
func TestMuteTerminalIsNotAsked(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"CI unset", nil, `guarded "1", then "" false`},
		{"CI empty", []string{"CI="}, `guarded "1", then "" true`},
		{"CI set", []string{"CI=woodpecker"}, `guarded "1", then "woodpecker" true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The last two keep an instrumented test binary quiet and quick at its end.
			env := append([]string{
				helper + "=1", "TERM=xterm-256color", "GOCOVERDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
			}, c.env...)
			fastest := time.Hour
			// A busy machine may be slow once; who waits for an answer is slow each time.
			for range 5 {
				output, first := runOnMuteTerminal(t, env)
				if got := strings.TrimRight(output, "\r\n"); got != c.want {
					t.Fatalf("the terminal got %q, want %q", got, c.want)
				}
				if fastest = min(fastest, first); fastest < time.Second {
					return
				}
			}
			t.Errorf("the first byte took %v at best", fastest)
		})
	}
}

// runOnMuteTerminal runs the test binary as helper on a pseudo-terminal of its own; it returns what the terminal
// got and how long the first byte took.
func runOnMuteTerminal(t *testing.T, env []string) (output string, first time.Duration) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := tty.Close(); err != nil { // only then does the reading below end with the program
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := terminal.Read(one); err != nil {
		t.Fatal(err)
	}
	first = time.Since(begin)
	rest, err := io.ReadAll(terminal)
	if err != nil && !errors.Is(err, syscall.EIO) { // Linux's word for the end of a terminal
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return string(one) + string(rest), first
}
