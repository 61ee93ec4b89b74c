package tui

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/adrg/xdg"

	"holdfast/tui/text"
)

// crash writes the report of a panic and returns how the screen ends because of it. It is called by the function
// that recovered, so that the stack is that of the panic. The report holds no text from disk but what the panic
// says.
func crash(dir, where string, cause any) *ExitError {
	what := text.Safe(fmt.Sprint(cause))
	e := &ExitError{Code: exitInternal}
	report := fmt.Appendf(nil, "holdfast crashed in %s: %s\n%s, %s %s/%s, pid %d\n\n%s", where, what,
		time.Now().Format(time.RFC3339), runtime.Version(), runtime.GOOS, runtime.GOARCH, os.Getpid(), debug.Stack())
	path, err := writeReport(dir, report)
	if err != nil {
		e.Err = fmt.Errorf("internal error in %s: %s; no report could be written (%w)", where, what, err)
		return e
	}
	e.Crash = path
	e.Err = fmt.Errorf("internal error in %s: %s; the report is %s", where, what, text.Safe(path))
	return e
}

// writeReport makes a new file that only its owner can read.
func writeReport(dir string, report []byte) (path string, err error) {
	if dir == "" {
		dir = filepath.Join(xdg.StateHome, "holdfast")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "crash-"+time.Now().Format("20060102-150405")+"-*.txt") // made with mode 0600
	if err != nil {
		return "", err
	}
	if _, err = f.Write(report); err != nil {
		_ = f.Close()
		return "", err
	}
	return f.Name(), f.Close()
}
