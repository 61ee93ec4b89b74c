package record

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func write(tb testing.TB, path string, data []byte) string {
	tb.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func isError(t *testing.T, err error, problem Problem, detail string) Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Problem != problem || !strings.Contains(e.Detail, detail) {
		t.Errorf("got %v, want %s: %s", e, problem, detail)
	}
	return *e
}

func TestFileIsReadWithWhatFstatSays(t *testing.T) {
	data := load(t, "lock", "test.lock")
	path := write(t, filepath.Join(t.TempDir(), "x.lock"), data)
	then := time.Unix(1_700_000_000, 123_456_700)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(string) (File, error){"Read": Read, "ReadStable": ReadStable} {
		f, err := read(path)
		if err != nil || f.Path != path || !bytes.Equal(f.Data, data) {
			t.Fatalf("%s: %+v, %v", name, f, err)
		}
		uid, _ := owner(fi)
		if f.Stat.Size != fi.Size() || !f.Stat.ModTime.Equal(then) || f.Stat.Mode != fi.Mode() || f.Stat.UID != uid || f.Stat.Ino == 0 {
			t.Errorf("%s: %+v, want %+v", name, f.Stat, fi)
		}
	}
}

func TestMissingIsNoProblemOfTheFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), nil)
	for _, read := range []func(string) (File, error){Read, ReadStable} {
		for path, want := range map[string]error{
			filepath.Join(dir, "no.lock"):        fs.ErrNotExist,
			filepath.Join(dir, "no", "no.lock"):  fs.ErrNotExist,
			filepath.Join(file, "no.lock"):       syscall.ENOTDIR,
			filepath.Join(file, "no", "no.lock"): syscall.ENOTDIR,
		} {
			_, err := read(path)
			var e *fs.PathError
			if !errors.Is(err, want) || !errors.As(err, &e) || e.Path != path {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	}
}

func TestUpTo64KiBAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	for size, ok := range map[int]bool{0: true, 1: true, MaxSize - 1: true, MaxSize: true, MaxSize + 1: false, 2 * MaxSize: false} {
		write(t, path, bytes.Repeat([]byte("x"), size))
		for _, read := range []func(string) (File, error){Read, ReadStable} {
			f, err := read(path)
			if ok {
				if err != nil || len(f.Data) != size {
					t.Errorf("%d: %d bytes, %v", size, len(f.Data), err)
				}
				continue
			}
			isError(t, err, TooLarge, fmt.Sprintf("%d bytes", size))
		}
	}
	huge := filepath.Join(t.TempDir(), "huge.lock")
	write(t, huge, nil)
	if err := os.Truncate(huge, 1<<30); err != nil {
		t.Fatal(err)
	}
	_, err := Read(huge)
	isError(t, err, TooLarge, "1073741824 bytes")
}

// A fake is a file of which each read says the next of the texts.
type fake struct {
	texts  []string
	mtime  time.Time
	mode   fs.FileMode
	size   int64 // what fstat says, if not 0
	errs   []error
	opened *int
	closed *int
}

func (f *fake) open(string) (handle, error) {
	if len(f.errs) > 0 && f.errs[0] != nil {
		return nil, f.errs[0]
	}
	*f.opened++
	return f, nil
}

func (f *fake) stat() (Stat, Stamp, error) {
	size := f.size
	if size == 0 && len(f.texts) > 0 {
		size = int64(len(f.texts[0]))
	}
	var err error
	if len(f.errs) > 1 {
		err = f.errs[1]
	}
	return Stat{Size: size, ModTime: f.mtime, Mode: f.mode}, Stamp{}, err
}

func (f *fake) readAt(b []byte, offset int64) (int, error) {
	if len(f.errs) > 2 {
		return 0, f.errs[2]
	}
	n := copy(b, f.texts[0][min(int(offset), len(f.texts[0])):])
	if int(offset)+n == len(f.texts[0]) && len(f.texts) > 1 {
		f.texts = f.texts[1:]
	}
	return n, nil
}

func (f *fake) close() { *f.closed++ }

func newFake(texts ...string) *fake {
	return &fake{texts: texts, mtime: time.Now(), opened: new(int), closed: new(int)}
}

const (
	beat1 = `{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":1999}`
	beat2 = `{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":2000}`
	mix   = `{"pid":1,"hostname":"h","created_at_ms":2,"heartbeat_at_ms":2999}`
	half  = `{"pid":1,"hostname":"h","crea`
)

func TestFileThatGrowsOrShrinksAfterFstatIsReadToItsEnd(t *testing.T) {
	for _, size := range []int64{1, 10, 200} {
		f := newFake(beat1)
		f.size = size
		got, err := read("x", f.open)
		if err != nil || string(got.Data) != beat1 {
			t.Errorf("fstat said %d: %q, %v", size, got.Data, err)
		}
	}
	f := newFake(strings.Repeat("x", MaxSize+7))
	f.size = 100
	_, err := read("x", f.open)
	isError(t, err, TooLarge, "bytes")
}

func TestTooLargeFileIsNotEvenRead(t *testing.T) {
	f := newFake(beat1)
	f.size = MaxSize + 1
	f.errs = []error{nil, nil, syscall.EIO}
	_, err := read("x", f.open)
	isError(t, err, TooLarge, "65537 bytes")
}

func TestLockInTheMiddleOfARewriteIsReadAgain(t *testing.T) {
	old := time.Now().Add(-time.Second)
	for name, c := range map[string]struct {
		texts  []string
		mtime  time.Time
		want   string // "": an error
		opened int
	}{
		"old and whole":               {[]string{beat1, beat2}, old, beat1, 1},
		"fresh and unchanged":         {[]string{beat1, beat1, beat2}, time.Now(), beat1, 1},
		"a mix first":                 {[]string{mix, beat2, beat2}, time.Now(), beat2, 1},
		"a mix between":               {[]string{beat1, mix, beat2, beat2}, time.Now(), beat2, 1},
		"never twice the same, then":  {[]string{mix, beat1, mix, beat2, beat1, beat1}, time.Now(), beat1, 2},
		"mtime in the future":         {[]string{mix, beat2, beat2}, time.Now().Add(time.Hour), beat2, 1},
		"half at first":               {[]string{half, half, beat1}, time.Now(), beat1, 2},
		"half at first, old":          {[]string{half, beat1}, old, beat1, 2},
		"empty at first":              {[]string{"", "", half, half, beat1}, time.Now(), beat1, 3},
		"half for good":               {[]string{half}, old, half, 2},
		"always another half":         {[]string{"{", `{"`, `{"p`, `{"pi`, beat1}, old, `{"pi`, 4},
		"faster than it can be read":  {[]string{beat1, mix, beat2, mix, beat1, mix, beat2, mix, beat1, mix, beat2, mix, beat1, mix, beat2, mix}, time.Now(), "", 4},
		"empty since long":            {[]string{""}, old, "", 2},
		"old, but a writer came then": {[]string{"x", beat1, beat1}, time.Now(), beat1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(c.texts...)
			f.mtime = c.mtime
			got, l, malformed, err := readLock("x.lock", f.open)
			if *f.opened != c.opened || *f.closed != c.opened {
				t.Errorf("opened %d times, closed %d times; want %d", *f.opened, *f.closed, c.opened)
			}
			if c.want == "" && c.texts[0] != "" {
				isError(t, err, Malformed, "faster")
				return
			}
			if err != nil || string(got.Data) != c.want {
				t.Fatalf("got %q, %v; want %q", got.Data, err, c.want)
			}
			if want, derr := DecodeLock("x.lock", got.Data); (derr == nil) != (malformed == nil) || l.HeartbeatAtMS != want.HeartbeatAtMS {
				t.Errorf("decoded %+v, %v", l, malformed)
			}
		})
	}
}

// A writer moves the mtime before the bytes: what fstat said before the read proves nothing.
func TestMtimeCountsAfterTheRead(t *testing.T) {
	f := newFake(mix, beat2, beat2)
	stats := 0
	f.mtime = time.Now().Add(-time.Hour)
	open := func(string) (handle, error) { return &later{f, &stats}, nil }
	got, _, _, err := readLock("x", open)
	if err != nil || string(got.Data) != beat2 {
		t.Fatalf("got %q, %v", got.Data, err)
	}
}

type later struct {
	*fake
	stats *int
}

func (l *later) stat() (Stat, Stamp, error) {
	st, stamp, err := l.fake.stat()
	if *l.stats++; *l.stats > 1 {
		st.ModTime = time.Now()
	}
	return st, stamp, err
}

func TestWhatCannotBeReadIsDeniedWithItsReason(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "x.lock"), nil)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	owned := fmt.Sprintf("owned by uid %d, mode 0640", os.Getuid())
	for _, c := range []struct {
		errs   []error // of open, stat, read
		op     string
		detail string
	}{
		{[]error{syscall.EACCES}, "open", owned},
		{[]error{syscall.EPERM}, "open", owned},
		{[]error{syscall.EIO}, "open", syscall.EIO.Error() + ", " + owned},
		{[]error{syscall.ESTALE}, "open", syscall.ESTALE.Error() + ", " + owned},
		{[]error{syscall.EMFILE}, "open", syscall.EMFILE.Error()},
		{[]error{nil, syscall.ESTALE}, "read", syscall.ESTALE.Error()},
		{[]error{nil, nil, syscall.EIO}, "read", syscall.EIO.Error()},
	} {
		for _, read := range []func(string, func(string) (handle, error)) error{
			func(p string, open func(string) (handle, error)) error { _, err := read(p, open); return err },
			func(p string, open func(string) (handle, error)) error { _, _, _, err := readLock(p, open); return err },
		} {
			f := newFake(beat1)
			f.errs = c.errs
			err := read(path, f.open)
			e := isError(t, err, Denied, c.detail)
			if e.Op != c.op || !errors.Is(err, c.errs[len(c.errs)-1]) || *f.opened != *f.closed {
				t.Errorf("%v: %+v, opened %d, closed %d", c.errs, e, *f.opened, *f.closed)
			}
		}
	}
	// Nothing can be seen of a file that is gone meanwhile.
	f := newFake()
	f.errs = []error{syscall.EACCES}
	_, err := read(filepath.Join(t.TempDir(), "gone"), f.open)
	isError(t, err, Denied, "permission denied")
}

// The writer does what a holder's heartbeat does, only more often: one write in place, of the same length. All digits
// and the whole nonce change with each beat, so that no mix passes for a beat. (What a reader does with a mix, the
// tests above show; here none is to be had by the thousand reads.)
func TestReadersOfABeatingLockSeeNothingThatNobodyWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	beats := make([][]byte, 2)
	for i := range beats {
		l := Lock{PID: 1, Hostname: "h", HeartbeatAtMS: 1111111111111111111 * uint64(i+1)}
		l.WriterEpoch = strings.Repeat(string(rune('a'+i)), 100)
		beats[i] = l.Encode()
	}
	write(t, path, beats[0])
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		var err error
		for i := 1; err == nil && !stop.Load(); i++ {
			_, err = f.WriteAt(beats[i%2], 0)
			time.Sleep(time.Millisecond)
		}
		done <- errors.Join(err, f.Close())
	}()
	seen := [2]int{}
	for tries := 0; tries < 5000 || seen[0] == 0 || seen[1] == 0; tries++ {
		f, l, err := ReadLock(path)
		if err != nil {
			t.Errorf("%v in %q", err, f.Data)
			break
		}
		beat := int(l.WriterEpoch[0] - 'a')
		if !bytes.Equal(f.Data, beats[beat]) {
			t.Errorf("nobody wrote %q", f.Data)
		}
		seen[beat]++
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A reader that was suspended between its two looks sees an old mtime both times.
func TestWriteBehindASuspendedReaderIsSeen(t *testing.T) {
	for moved, want := range map[bool]string{false: mix, true: beat2} {
		f := newFake(mix, beat2, beat2)
		f.mtime = time.Now().Add(-time.Minute)
		stats := 0
		got, err := func() (File, error) {
			f, _, _, err := readLock("x", func(string) (handle, error) { return &touched{f, &stats, moved}, nil })
			return f, err
		}()
		if err != nil || string(got.Data) != want || stats < 2 {
			t.Errorf("stamp moved %v: %q, %v after %d looks; want %q", moved, got.Data, err, stats, want)
		}
	}
}

// touched is a file that somebody wrote between the first read and the second stat.
type touched struct {
	*fake
	stats *int
	moved bool
}

func (h *touched) stat() (Stat, Stamp, error) {
	st, stamp, err := h.fake.stat()
	if *h.stats++; h.moved {
		stamp.changed = int64(min(*h.stats, 2))
	}
	return st, stamp, err
}

func TestLeaseIsReadWithItsRecord(t *testing.T) {
	dir, data := t.TempDir(), load(t, "leases", "agent-1.lease.json")
	path := write(t, filepath.Join(dir, "a.lease.json"), data)
	f, l, err := ReadLease(path)
	if want := mustLease(t, data); err != nil || !reflect.DeepEqual(l, want) || !bytes.Equal(f.Data, data) {
		t.Errorf("read %+v, %v; want %+v", l, err, want)
	}
	f, l, err = ReadLease(write(t, path, []byte("{\x00")))
	isError(t, err, Malformed, "")
	if string(f.Data) != "{\x00" || !reflect.DeepEqual(l, Lease{}) {
		t.Errorf("%q, %+v", f.Data, l)
	}
	if f, _, err = ReadLease(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || f.Data != nil {
		t.Errorf("missing: %+v, %v", f, err)
	}
}
