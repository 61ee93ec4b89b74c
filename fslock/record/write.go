package record

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// ReplaceOptions says what Replace forces to the disk.
type ReplaceOptions struct {
	Sync    bool // the new content, before it gets its name
	SyncDir bool // the directory, so that the name itself outlives a power cut
}

// Replace puts data under the name of a lease or a counter, mode 0600 less umask, whatever was there before. What root
// makes belongs to the directory's owner, who could not read it otherwise. Other
// processes see the old file or the new one, never a part. The error wraps the system's and names path; unless it
// came from SyncDir, the old file is still there. A file system that cannot sync directories is no error.
func Replace(path string, data []byte, opt ReplaceOptions) error {
	dir, _ := filepath.Split(path) // not cleaned: behind a link, ".." is another place
	temp, err := writeTemp(dir, replaceName, data, opt.Sync)
	if err == nil {
		// A network file system may tell only now that the disk is full.
		if err = temp.Close(); err == nil {
			err = os.Rename(temp.Name(), path)
		}
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}
	if err == nil && opt.SyncDir {
		err = syncDir(cmp.Or(dir, "."))
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// Create puts data under the name of a lock or a token, mode 0600 less umask, if there is nothing of that name. What
// root makes belongs to the directory's owner.
// Other processes see nothing or the whole, but for what Publish says. The error wraps the system's and names path; it
// matches fs.ErrExist if the name is taken, by whatever kind of file. Content is forced to the disk only off the local
// file systems, where others see it no sooner; on a local one a lock dies with the boot that it names.
func Create(path string, data []byte) error {
	dir, _ := filepath.Split(path)
	_, local := FileSystem(cmp.Or(dir, "."))
	t, err := CreateTemp(path, data, CreateOptions{Sync: !local})
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Publish(path)
}

// writeTemp writes data to a new file, which is returned open. Dir ends in a separator, or is empty. On error there is
// no such file.
func writeTemp(dir string, name func() string, data []byte, sync bool) (*os.File, error) {
	f, err := createTemp(dir, name)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

func createTemp(dir string, name func() string) (*os.File, error) {
	const tries = 100
	for try := 1; ; try++ {
		f, err := openNew(dir + name())
		if err == nil {
			adopt(f, dir)
		}
		if !errors.Is(err, fs.ErrExist) || try == tries {
			return f, err
		}
	}
}

// CreateEmpty makes an empty file of that mode less umask, if nothing has its name: a file to be flocked. What root
// makes is the directory's owner's, as all that this package makes. That there is such a file is an error that matches
// fs.ErrExist.
func CreateEmpty(path string, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	dir, _ := filepath.Split(path)
	adopt(f, dir)
	return f.Close()
}

// regular closes what is no regular file.
func regular(f *os.File) (*os.File, error) {
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &Error{Op: "open", Path: f.Name(), Problem: NotRegular, Detail: what(st.Mode())}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// replaceName is a temp name as AgentMux makes them.
func replaceName() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	b := []byte(".registry-tmp-XXXXXX.json")
	for i := range b {
		if b[i] == 'X' {
			b[i] = letters[rand.IntN(len(letters))]
		}
	}
	return string(b)
}

func syncDir(dir string) error {
	if !canSyncDir {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
