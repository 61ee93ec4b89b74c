package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CreateOptions says how a record gets its name. The zero value is the usual way.
type CreateOptions struct {
	Sync   bool                         // force the content to the disk before it gets its name
	Link   func(old, name string) error // nil: os.Link
	Rename func(old, name string) error // must not replace; nil: the system's, where it has one
}

// Temp is a file beside a lock's name that is to get that name: a waiter's announcement, then the lock itself.
type Temp struct {
	File *os.File // open for reading and writing; after Publish it is the published file
	Path string   // "" after Publish

	opt CreateOptions
}

// CreateTemp writes data to a new temp of the lock or token at path, mode 0600 less umask. The error wraps the
// system's and names path.
func CreateTemp(path string, data []byte, opt CreateOptions) (*Temp, error) {
	dir, name := filepath.Split(path) // not cleaned: behind a link, ".." is another place
	f, err := writeTemp(dir, func() string { return TempName(name) }, data, opt.Sync)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &Temp{File: f, Path: f.Name(), opt: opt}, nil
}

// Publish gives the temp the name path, in the same directory, if there is nothing of that name. Other processes see
// nothing or the whole, but for file systems that have neither hard links nor a rename that replaces nothing: there a
// part may be seen for a moment. The error wraps the system's and names path. It matches fs.ErrExist if the name is
// taken, by whatever kind of file; the temp is then still there, and can be published later.
func (t *Temp) Publish(path string) error {
	err := t.publish(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	t.Path = ""
	return nil
}

func (t *Temp) publish(path string) error {
	link, rename := t.opt.Link, t.opt.Rename
	if link == nil {
		link = os.Link
	}
	if rename == nil {
		rename = renameNoReplace
	}
	err := link(t.Path, path)
	if err == nil || t.Named(path) {
		// A network file system may repeat a call whose answer was lost, and then says that the name is taken: by us.
		_ = os.Remove(t.Path) // what is left is litter, and known as such by its name
		return nil
	}
	if !unsupported(err) {
		return err
	}
	if err = rename(t.Path, path); err == nil || t.Named(path) {
		return nil
	}
	if !unsupported(err) {
		return err
	}
	return t.publishOpenly(path)
}

// publishOpenly writes the record under its name, where nothing better is to be had. Who reads it meanwhile sees a torn
// record; an original may remove that, so that the name is not ours until it is looked at again.
func (t *Temp) publishOpenly(path string) error {
	st, err := t.File.Stat()
	if err != nil {
		return err
	}
	data := make([]byte, st.Size())
	if _, err := t.File.ReadAt(data, 0); err != nil {
		return err
	}
	f, err := openNew(path)
	if err != nil {
		return err
	}
	dir, _ := filepath.Split(path)
	adopt(f, dir)
	_, err = f.Write(data)
	if err == nil && t.opt.Sync {
		err = f.Sync()
	}
	ours := Temp{File: f}
	switch named := ours.Named(path); {
	case err == nil && named:
		_ = t.File.Close()
		_ = os.Remove(t.Path)
		t.File = f
		return nil
	case named:
		_ = os.Remove(path)
	case err == nil:
		err = fs.ErrExist // somebody was quicker after all
	}
	_ = f.Close()
	return err
}

// Named reports whether path names the file.
func (t *Temp) Named(path string) bool {
	mine, err := t.File.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, named)
}

// Dir reports whether the directory of the temp is there.
func (t *Temp) Dir() bool {
	dir, _ := filepath.Split(t.Path)
	st, err := os.Stat(cmp.Or(dir, "."))
	return err == nil && st.IsDir()
}

// Close closes the file, and removes the temp unless it was published.
func (t *Temp) Close() {
	_ = t.File.Close()
	if t.Path != "" {
		_ = os.Remove(t.Path)
	}
}

// unsupported reports whether an error says that the file system or the system cannot do that at all. EPERM is what
// Linux says of a file system without hard links.
func unsupported(err error) bool {
	for _, e := range [...]error{syscall.EPERM, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOTSUP, syscall.EINVAL, syscall.EMLINK, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return noSuchFunction(err)
}
