// Package audit is the log of what a person changed by hand: one file of JSON lines that only grows, written before
// the change that it tells of.
//
// What it promises:
//
//  1. Append returns nil only when the whole entry is on the disk, as one line.
//  2. Entries of several processes never mix: they write one after the other, behind an flock on a file beside the log.
//  3. A line that a crash tore stays alone: the next entry begins a line of its own.
//  4. Reading tells every whole entry, whatever stands between them, and holds one line at a time.
//  5. Neither follows a link in place of the log, waits at a FIFO, or waits for anybody longer than 2 s.
//
// What it does not promise: that the change which an entry tells of was made (a crash may have come between the two;
// an error is told by a "failed" entry), and anything against a program that rewrites the file. It never shrinks;
// nobody rotates it.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"syscall"
	"time"

	"github.com/adrg/xdg"
)

// MaxLine is the size of the longest line, in bytes: a record of 64 KiB fits in, however it is escaped.
const MaxLine = 1 << 20

// The questions that a caller asks of an error.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrBusy       = errors.New("another process keeps the audit log busy")
	ErrTooLarge   = errors.New("entry is too large for the audit log")
)

// Actions.
const (
	ActionEpoch = "epoch" // the epoch counter of a lease was set
	ActionBreak = "break" // a lease or a lock was taken from its holder
	ActionSweep = "sweep" // a sweep removed a token or a temp
	ActionToken = "token" // one token was removed
	ActionUndo  = "undo"  // what a break removed was put back
	// ActionDone says that the undo before it about the same path was carried out: one that a crash cut short can be
	// tried again, one that was done cannot.
	ActionDone = "done"
	// ActionFailed says that what the entry before it about the same path tells of was not done after all.
	ActionFailed = "failed"
)

// Log is one audit log. The zero value is the user's own, and so is a nil *Log. Its methods may be called at the same
// time, by several processes, too.
type Log struct {
	Path string // the file; "": audit.jsonl in the directory holdfast of the XDG state directory

	write func(f *os.File, line []byte) (int, error) // nil: f.Write
}

// Entry is one act. What does not apply to it is zero.
type Entry struct {
	Time time.Time // to the millisecond; zero: when it is appended
	// Action is one of those above, or one that a later program knows. Required.
	Action string
	// Path is what was acted on: a lease's would-be file for everything that concerns a lease. It is written as
	// Canonical has it, so that the same file has one name in the log. Required.
	Path   string
	Kind   string // "lease", "lock", "token", "temp"
	ID     string // leases
	Reason string // of the person
	Who    Who    // zero: this process
	// Before is what was in the file that the act replaced or removed; for ActionEpoch, in the counter. Nil: there
	// was none, or Found says what stood there.
	Before []byte
	Found  string // what could not be read, in words: "a symlink"
	// EpochOld is the epoch that counter or record had before the act, the higher of the two; EpochNew is what the
	// counter says after it. 0: none.
	EpochOld, EpochNew uint64
	Nonce              string // claim id or writer epoch
}

// Who is the process that acted, and for whom.
type Who struct {
	UID  int    // -1 where users have no numbers
	User string // "": unknown
	PID  int
	Host string
}

// File returns the path of the log. The error says that there is no place for it.
func (l *Log) File() (string, error) {
	if l != nil && l.Path != "" {
		return l.Path, nil
	}
	if !filepath.IsAbs(xdg.StateHome) {
		return "", errors.New("no state directory is known for the audit log; XDG_STATE_HOME names one")
	}
	return filepath.Join(xdg.StateHome, "holdfast", "audit.jsonl"), nil
}

// Canonical is the name under which the log knows a file: absolute, with no link in its directory, the file itself
// as it is called. Of a directory that is not there only the first holds.
func Canonical(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	dir, base := filepath.Split(path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(real, base)
	}
	return filepath.Clean(path)
}

// Append adds one entry and forces it to the disk: the file 0600, the directory that it needs 0700, both less umask. It
// waits at most 2 s for other processes. On any error nothing may be done that the entry tells of; a part of it may
// be in the file. Errors match ErrNotRegular, ErrBusy or ErrTooLarge, or are the system's and name the path.
func (l *Log) Append(e Entry) (err error) {
	path, err := l.File()
	if err != nil {
		return err
	}
	line, err := e.encode(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	leave, err := enter(path)
	if err != nil {
		return err
	}
	defer leave()
	f, size, err := open(path, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr // a network file system may tell only now that the disk is full
		}
	}()
	last := []byte{'\n'}
	if size > 0 {
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		// Its writer died in the middle of a line: ours would be the end of that one, and nobody could read it.
		line = append([]byte{'\n'}, line...)
	}
	write := (*os.File).Write
	if l != nil && l.write != nil {
		write = l.write
	}
	if _, err := write(f, line); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if size > 0 {
		return nil
	}
	// The file is new, perhaps its directory, too: without their names on the disk the entry is lost all the same.
	if err := syncDir(dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Done appends that what e tells of was done.
func (l *Log) Done(e Entry) error {
	return l.Append(Entry{Action: ActionDone, Path: e.Path, Kind: e.Kind, ID: e.ID, Nonce: e.Nonce})
}

// Failed appends that what e tells of was not done, because of err. The one who has the path to himself tells it before
// he lets go, so that no other's entry about it comes between the two.
func (l *Log) Failed(e Entry, err error) error {
	return l.Append(Entry{Action: ActionFailed, Path: e.Path, Kind: e.Kind, ID: e.ID, Nonce: e.Nonce, Reason: err.Error()})
}

// open opens the log and says how large it is. Nothing but a regular file is opened for good.
func open(path string, flags int) (*os.File, int64, error) {
	f, err := os.OpenFile(path, flags|openFlags, 0o600)
	if err != nil {
		if st, lerr := os.Lstat(path); lerr == nil && !st.Mode().IsRegular() {
			return nil, 0, irregular(path, st)
		}
		return nil, 0, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = irregular(path, st)
	}
	if err == nil && openFlags == 0 {
		err = samePlace(path, st) // where open follows links, the name is looked at
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// samePlace reports an error unless path itself is that file.
func samePlace(path string, st fs.FileInfo) error {
	named, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(named, st) {
		return irregular(path, named)
	}
	return nil
}

func irregular(path string, st fs.FileInfo) error {
	what := map[fs.FileMode]string{
		fs.ModeSymlink: "a symlink", fs.ModeDir: "a directory", fs.ModeNamedPipe: "a FIFO", fs.ModeSocket: "a socket",
	}[st.Mode().Type()]
	if what == "" {
		what = "a device"
	}
	return &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%w: it is %s", ErrNotRegular, what)}
}

// myself is who acts. A name that cannot be found out is left out.
func myself() Who {
	w := Who{UID: os.Getuid(), PID: os.Getpid()}
	w.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		w.User = u.Username
	}
	return w
}

// syncDir forces the names in a directory to the disk, where a file system can do that.
func syncDir(dir string) error {
	if !canSyncDir {
		return nil
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil // one that may be entered and not listed; what is in it was there before us
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// encode is the line of an entry, with its end.
func (e Entry) encode(log string) ([]byte, error) {
	if e.Action == "" || e.Path == "" {
		return nil, &fs.PathError{Op: "append", Path: log, Err: errors.New("an entry needs an action and a path")}
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Who == (Who{}) {
		e.Who = myself()
	}
	e.Path = Canonical(e.Path)
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // people read it
	err := enc.Encode(newWire(&e))
	if err == nil && line.Len() > MaxLine {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, &fs.PathError{Op: "append", Path: log, Err: err}
	}
	return line.Bytes(), nil
}
