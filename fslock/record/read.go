package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// A handle is an open file. Only its methods touch the system, so that tests can let them fail.
type handle interface {
	stat() (Stat, Stamp, error)
	readAt(b []byte, offset int64) (int, error) // 0 at the end of the file
	close()
}

// Read reads a file without following a link at its end, without waiting (a FIFO does not block it) and without
// writing. What is no regular file of at most MaxSize bytes, or may not be read, is an *Error: NotRegular,
// TooLarge or Denied, with what was found there in Detail. A file or directory that is missing is an
// *fs.PathError that matches fs.ErrNotExist, a path through something that is no directory one with ENOTDIR.
//
// Read may see a file that is rewritten in place half old and half new; for locks there is ReadStable.
func Read(path string) (File, error) { return read(path, openFile) }

func read(path string, open func(string) (handle, error)) (File, error) {
	h, f, err := begin(path, open)
	if err != nil {
		return File{}, err
	}
	h.close()
	return f, nil
}

// begin opens and reads a file. The handle is open if there is no error.
func begin(path string, open func(string) (handle, error)) (handle, File, error) {
	h, err := open(path)
	if err != nil {
		return nil, File{}, openError(path, err)
	}
	f := File{Path: path}
	if f.Stat, f.Stamp, err = h.stat(); err != nil {
		h.close()
		return nil, File{}, denied("read", path, err)
	}
	switch {
	case !f.Stat.Mode.IsRegular():
		err = &Error{Op: "open", Path: path, Problem: NotRegular, Detail: what(f.Stat.Mode)}
	case f.Stat.Size > MaxSize:
		err = tooLarge(path, f.Stat.Size)
	default:
		f.Data, err = readAll(path, h, f.Stat.Size)
	}
	if err != nil {
		h.close()
		return nil, File{}, err
	}
	return h, f, nil
}

// readAll reads from the beginning to the end, which is where size says unless the file grew.
func readAll(path string, h handle, size int64) ([]byte, error) {
	b := make([]byte, 0, max(size, 0)+1)
	for {
		n, err := h.readAt(b[len(b):cap(b)], int64(len(b)))
		if err != nil {
			return nil, denied("read", path, err)
		}
		b = b[:len(b)+n]
		switch {
		case len(b) > MaxSize:
			return nil, tooLarge(path, int64(len(b)))
		case n == 0 || int64(len(b)) == size:
			return b, nil
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

const (
	fresh = 100 * time.Millisecond // a file younger than this may be in the middle of a rewrite
	looks = 4                      // how often a file that does not hold still is looked at
	pause = time.Millisecond       // between two looks
)

// ReadLease is Read and DecodeLease in one. The record's strings are parts of the file's Data, which must not be changed.
// The file is returned with an error of DecodeLease, too.
func ReadLease(path string) (File, Lease, error) {
	f, err := Read(path)
	if err != nil {
		return File{}, Lease{}, err
	}
	l, err := decodeLease(path, f.Data, alias(f.Data))
	return f, l, err
}

// ReadStable is Read for locks and tokens, whose holders rewrite them in place: what it returns was in the file
// as a whole. A file that was written less than 100 ms ago is read until two reads agree; one that
// is no lock is looked at again after a millisecond, until two looks agree; four times at most. A file that
// changes faster than it can be read is an *Error with Op "read" and Problem Malformed.
//
// Not promised: that it is a lock; and that it is whole if its writer was suspended in the middle of a write call
// for as long as it takes to read twice, which no reader can see.
func ReadStable(path string) (File, error) {
	f, _, _, err := readLock(path, openFile)
	return f, err
}

// ReadLock is ReadStable and DecodeLock in one. The record's strings are parts of the file's Data, which must not be
// changed. The file is returned with an error of DecodeLock, too.
func ReadLock(path string) (File, Lock, error) {
	f, l, malformed, err := readLock(path, openFile)
	if err == nil {
		err = malformed
	}
	return f, l, err
}

func readLock(path string, open func(string) (handle, error)) (f File, l Lock, malformed, err error) {
	steady := false
	for look := range looks {
		if look > 0 {
			time.Sleep(pause)
		}
		before := f.Data
		if f, steady, err = settle(path, open); err != nil {
			return File{}, Lock{}, nil, err
		}
		l, malformed = decodeLock(path, f.Data, alias(f.Data))
		if steady && malformed == nil || look > 0 && malformed != nil && bytes.Equal(f.Data, before) {
			return f, l, malformed, nil
		}
	}
	if malformed == nil {
		e := &Error{Op: "read", Path: path, Problem: Malformed, Detail: "rewritten faster than it can be read"}
		return File{}, Lock{}, nil, e
	}
	return f, l, malformed, nil
}

// settle looks at a file once and says whether what it read was there as a whole. A writer moves the mtime
// before it moves the bytes: only an mtime that is old *after* the read says that nobody wrote during it.
func settle(path string, open func(string) (handle, error)) (File, bool, error) {
	h, f, err := begin(path, open)
	if err != nil {
		return File{}, false, err
	}
	defer h.close()
	before := f.Stamp
	if f.Stat, f.Stamp, err = h.stat(); err != nil {
		return File{}, false, denied("read", path, err)
	}
	// One that stood still between the read and the second look may have slept over a write.
	if f.Stamp == before && time.Since(f.Stat.ModTime) >= fresh {
		return f, true, nil
	}
	for range looks - 1 {
		again, err := readAll(path, h, f.Stat.Size)
		if err != nil {
			return File{}, false, err
		}
		if bytes.Equal(again, f.Data) {
			return f, true, nil
		}
		f.Data = again
	}
	return f, false, nil
}

// openError says what open's refusal means. The error alone does not: ELOOP is a link at the end of the path or a
// loop before it, ENXIO a socket or a device without a driver.
func openError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if fi, lerr := os.Lstat(path); lerr == nil && !fi.Mode().IsRegular() {
		return &Error{Op: "open", Path: path, Problem: NotRegular, Detail: what(fi.Mode()), Err: err}
	}
	return denied("open", path, err)
}

func denied(op, path string, err error) *Error {
	e := &Error{Op: op, Path: path, Problem: Denied, Detail: err.Error(), Err: err}
	fi, lerr := os.Lstat(path)
	if lerr != nil {
		return e
	}
	seen := fmt.Sprintf("mode %04o", unixMode(fi.Mode()))
	if uid, ok := owner(fi); ok {
		seen = fmt.Sprintf("owned by uid %d, %s", uid, seen)
	}
	if errors.Is(err, fs.ErrPermission) {
		e.Detail = seen
	} else {
		e.Detail += ", " + seen
	}
	return e
}

func tooLarge(path string, size int64) *Error {
	return &Error{Op: "read", Path: path, Problem: TooLarge, Detail: fmt.Sprintf("%d bytes", size)}
}

// what names a file that is not regular.
func what(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeSymlink:
		return "a symlink"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeNamedPipe:
		return "a FIFO"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "a device"
	default:
		return "not a regular file"
	}
}

// unixMode are the permission bits as chmod takes them.
func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for i, special := range []fs.FileMode{fs.ModeSticky, fs.ModeSetgid, fs.ModeSetuid} {
		if mode&special != 0 {
			bits |= 0o1000 << i
		}
	}
	return bits
}
