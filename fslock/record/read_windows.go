package record

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

type openedFile struct{ *os.File }

// openFile looks before it opens, because there is no flag that refuses links and other reparse points, and again
// afterwards, because the name may have been given to another file in between.
func openFile(path string) (handle, error) {
	before, err := os.Lstat(path)
	if err != nil {
		return nil, bare(err)
	}
	if !before.Mode().IsRegular() {
		return nil, windows.ERROR_CANT_ACCESS_FILE
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, bare(err)
	}
	after, err := f.Stat()
	if err == nil && os.SameFile(before, after) {
		return openedFile{f}, nil
	}
	_ = f.Close()
	if err == nil {
		err = windows.ERROR_CANT_ACCESS_FILE
	}
	return nil, bare(err)
}

// bare takes off what package os put around an error of the system.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func (f openedFile) stat() (Stat, Stamp, error) {
	fi, err := f.Stat()
	if err != nil {
		return Stat{}, Stamp{}, bare(err)
	}
	st := Stat{Size: fi.Size(), ModTime: fi.ModTime(), Mode: fi.Mode()}
	var id windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &id); err != nil {
		return Stat{}, Stamp{}, err
	}
	st.Dev = uint64(id.VolumeSerialNumber)
	st.Ino = uint64(id.FileIndexHigh)<<32 | uint64(id.FileIndexLow)
	return st, stampOf(fi), nil
}

func (f openedFile) readAt(b []byte, offset int64) (int, error) {
	n, err := f.ReadAt(b, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, bare(err)
}

func (f openedFile) close() { _ = f.Close() }

// owner: a file's owner is no number here.
func owner(fs.FileInfo) (uid uint32, ok bool) { return 0, false }

// canSyncDir: a directory cannot be flushed here; NTFS journals the rename.
const canSyncDir = false

// adopt: who makes a file in somebody's directory makes it readable to that one.
func adopt(*os.File, string) {}
