package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
)

// LineError is a line of the log that is no entry: torn by a crash, or of somebody else's. The lines after it are read.
type LineError struct {
	Path   string
	Line   int // counted from 1
	Reason string
	Err    error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s: line %d is no entry: %s", e.Path, e.Line, e.Reason)
}

func (e *LineError) Unwrap() error { return e.Err }

// Entries reads the log from its beginning. A *LineError stands for a line that is no entry, and the rest goes on; any
// other error ends it. A log that is not there is empty. Nothing is written and nobody waited for: of an entry that
// is being written at this moment a part may be read, as a torn line.
func (l *Log) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		path, err := l.File()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		f, size, err := open(path, os.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer f.Close()
		// What is appended from here on is not read: a writer that is quicker would never let it end.
		read(io.LimitReader(f, size), path, yield)
	}
}

func read(r io.Reader, path string, yield func(Entry, error) bool) {
	lines := bufio.NewReaderSize(r, MaxLine)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		bad := &LineError{Path: path, Line: n, Err: err}
		if errors.Is(err, bufio.ErrBufferFull) {
			bad.Reason = "it is too long"
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = lines.ReadSlice('\n')
			}
			line = nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			yield(Entry{}, err)
			return
		}
		text := bytes.TrimSpace(line)
		switch {
		case bad.Reason != "":
			if !yield(Entry{}, bad) {
				return
			}
		case len(text) > 0:
			e, derr := decode(text)
			if derr != nil {
				bad.Reason, bad.Err = derr.Error(), derr
				if !yield(Entry{}, bad) {
					return
				}
			} else if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// About reads the entries about path, from the oldest, but for those of which a later one says that they failed. Errors
// are those of Entries.
func (l *Log) About(path string) iter.Seq2[Entry, error] {
	path = Canonical(path)
	return func(yield func(Entry, error) bool) {
		var last *Entry // which the next one may say that it failed
		for e, err := range l.Entries() {
			switch {
			case err != nil:
				if !yield(Entry{}, err) {
					return
				}
			case e.Path != path:
			case e.Action == ActionFailed:
				last = nil
			default:
				if last != nil && !yield(*last, nil) {
					return
				}
				last = &e
			}
		}
		if last != nil {
			yield(*last, nil)
		}
	}
}

// Highest is the highest epoch that the log knows of the lease whose would-be file is path; 0: none. Bad are the lines
// that could not be read: a torn one tells of nothing that was done, since its writer died before its act; what stood
// in another one nobody knows. The error says that the log itself cannot be read.
func (l *Log) Highest(path string) (epoch uint64, bad []*LineError, err error) {
	for e, err := range l.About(path) {
		if line, ok := errors.AsType[*LineError](err); ok {
			bad = append(bad, line)
			continue
		}
		if err != nil {
			return 0, bad, err
		}
		epoch = max(epoch, e.EpochOld, e.EpochNew)
	}
	return epoch, bad, nil
}

// LastAct is what was done last to path, of breaks and undos: an undo counts once the log says that it was done. Lines
// that are no entries are passed over; ok is false when there is none. The error says that the log cannot be read.
func (l *Log) LastAct(path string) (last Entry, ok bool, err error) {
	var undo *Entry
	for e, err := range l.About(path) {
		if _, bad := errors.AsType[*LineError](err); bad {
			continue
		}
		if err != nil {
			return Entry{}, false, err
		}
		switch {
		case e.Action == ActionBreak:
			last, ok, undo = e, true, nil
		case e.Action == ActionUndo:
			undo = &e
		case e.Action == ActionDone && undo != nil:
			last, ok, undo = *undo, true, nil
		}
	}
	return last, ok, nil
}

// Stands reports whether a break is still what was done last to its path, of breaks and undos: nothing has put back
// since what it removed. One of which the log does not tell stands. The error says that the log cannot be read.
func (l *Log) Stands(broken Entry) (bool, error) {
	last, ok, err := l.LastAct(broken.Path)
	if err != nil {
		return false, err
	}
	same := last.Action == ActionBreak && last.Nonce == broken.Nonce && last.Time.Equal(broken.Time)
	return !ok || same || last.Time.Before(broken.Time), nil
}
