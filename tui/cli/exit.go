package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"holdfast/fslock/verdict"
	"holdfast/lease"
)

// The exit codes that are no verdict's.
const (
	codeFailed     = 1
	codeUsage      = 2
	codeHeld       = 3
	codeCannotTell = 5
	codeLost       = 6
	codeUnreadable = 7
	codeBlocked    = 8
	codeInternal   = 70
	codeTimedOut   = 124
	codeSignal     = 128
)

// problem is the end of a verb with a code of its own. Without err there is nothing left to say.
type problem struct {
	code int
	err  error
	hint string // what to do about it: a line of its own
}

func (p *problem) Error() string {
	if p.err == nil {
		return fmt.Sprintf("exit code %d", p.code)
	}
	return p.err.Error()
}

func (p *problem) Unwrap() error { return p.err }

// usage refuses what was typed.
func usage(format string, args ...any) error {
	return &problem{code: codeUsage, err: fmt.Errorf(format, args...)}
}

// exit ends a verb that has said all there is to say.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &problem{code: code}
}

// report tells the person why a verb ended, and returns the code to exit with.
func (a *app) report(err error) int {
	var p *problem
	var w *writeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &w) && errors.Is(w.err, syscall.EPIPE):
		// The reader has seen enough: it is not to be told of its own end.
		return codeSignal + int(syscall.SIGPIPE)
	case errors.As(err, &w):
		p = &problem{code: codeFailed, err: w}
	case errors.As(err, &p):
	case errors.Is(err, context.DeadlineExceeded):
		p = &problem{code: codeTimedOut, err: fmt.Errorf("timed out after %s", &a.timeout)}
	default:
		// Whatever else comes back is cobra's: an unknown flag, a wrong number of arguments.
		p = &problem{code: codeUsage, err: err, hint: "See holdfast --help."}
	}
	if p.err != nil {
		st := a.style()
		fmt.Fprintf(a.Stderr, "holdfast: %s\n", st.Safe(p.err.Error()))
		if hint := cmp.Or(p.hint, a.nextStep(p.err)); hint != "" {
			fmt.Fprintf(a.Stderr, "%s\n", st.Safe(hint))
		}
	}
	return p.code
}

// nextStep is what can be done about an error of which nobody knows more than the system said.
func (a *app) nextStep(err error) string {
	elsewhere := ""
	if a.lookedUp {
		elsewhere = " --root names another place."
	}
	switch {
	case errors.Is(err, lease.ErrReadOnly):
		return "It is done without --read-only."
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() == 0:
		return "Root may not do that either: the file system, an attribute or a security module forbids it." + elsewhere
	case errors.Is(err, fs.ErrPermission):
		return "The permissions of the file and of its directories say who may do that." + elsewhere
	case errors.Is(err, syscall.EROFS):
		return "The file system is mounted read-only: nothing can be changed there." + elsewhere
	case errors.Is(err, fs.ErrNotExist):
		if dir := missingDir(err); dir != "" {
			return "There is no directory " + dir + ". If that is the right path, `mkdir -p " + verdict.Quote(dir) + "` makes it." + elsewhere
		}
	}
	return ""
}

// missingDir is the directory that the error says is not there; "": it is of something else.
func missingDir(err error) string {
	path := ""
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		path = e.New
	}
	if !filepath.IsAbs(path) {
		return ""
	}
	dir := filepath.Dir(path)
	if strings.HasSuffix(path, string(filepath.Separator)) {
		dir = filepath.Clean(path)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return dir
}

// output remembers the first error of standard output: not everybody who writes there looks at it.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		err = &writeError{err}
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// lost is the error that nobody has told yet. That the reader is gone is none: to its own verb it may be.
func (o *output) lost() error {
	if errors.Is(o.err, syscall.EPIPE) {
		return nil
	}
	return o.err
}

// writeError is standard output that takes no more.
type writeError struct{ err error }

func (e *writeError) Error() string { return "standard output: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// print hands standard output to write, in one piece where that is possible.
func (a *app) print(write func(w io.Writer)) error {
	w := bufio.NewWriterSize(a.Stdout, 64<<10)
	write(w)
	return w.Flush() // bufio keeps the first error, a *writeError
}

// failed is an error of the system or the library: code 1.
func failed(err error) error {
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &problem{code: codeFailed, err: err}
}
