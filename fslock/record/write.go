package record

import (
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

// Replace puts data under the name of a lease or a counter, mode 0600 less umask, whatever was there before. Other
// processes see the old file or the new one, never a part. The error wraps the system's and names path; unless it
// came from SyncDir, the old file is still there. A file system that cannot sync directories is no error.
func Replace(path string, data []byte, opt ReplaceOptions) error {
	dir := filepath.Dir(path)
	temp, err := writeTemp(dir, replaceName, data, opt.Sync)
	if err == nil {
		if err = os.Rename(temp, path); err != nil {
			_ = os.Remove(temp)
		}
	}
	if err == nil && opt.SyncDir {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

// Create puts data under the name of a lock or a token, mode 0600 less umask, if there is nothing of that name.
// Other processes see nothing or the whole. The error wraps the system's and names path; it matches fs.ErrExist
// if the name is taken, by whatever kind of file. Content is forced to the disk only off the local file systems,
// where others see it no sooner; on a local one a lock dies with the boot that it names.
//
// The file system must have hard links.
func Create(path string, data []byte) error {
	dir, name := filepath.Dir(path), filepath.Base(path)
	_, local := FileSystem(dir)
	temp, err := writeTemp(dir, func() string { return TempName(name) }, data, !local)
	if err == nil {
		err = os.Link(temp, path)
		_ = os.Remove(temp) // what is left is litter, and known as such by its name
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// writeTemp writes data to a new file in dir and returns its path. On error there is no such file.
func writeTemp(dir string, name func() string, data []byte, sync bool) (string, error) {
	f, err := createTemp(dir, name)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr // a network file system may tell only now that the disk is full
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func createTemp(dir string, name func() string) (*os.File, error) {
	const tries = 100
	for try := 1; ; try++ {
		// O_EXCL takes no existing file, not even a dangling link.
		f, err := os.OpenFile(filepath.Join(dir, name()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) || try == tries {
			return f, err
		}
	}
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
