package record

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func lacks(err error) func(old, name string) error {
	return func(string, string) error { return err }
}

func newTemp(t *testing.T, path string, data []byte, opt CreateOptions) *Temp {
	t.Helper()
	temp, err := CreateTemp(path, data, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(temp.Close)
	return temp
}

// ways are what a file system may have, by what it says of what it has not.
func ways() map[string]CreateOptions {
	lost := func(name string) error { return &os.LinkError{Op: "link", Old: "", New: name, Err: syscall.EEXIST} }
	done := func(err func(name string) error) func(old, name string) error {
		return func(old, name string) error { return errors.Join(os.Link(old, name), err(name)) }
	}
	return map[string]CreateOptions{
		"link":                             {},
		"link, forced to the disk":         {Sync: true},
		"link says EPERM":                  {Link: lacks(&os.LinkError{Op: "link", Err: syscall.EPERM})},
		"link says ENOSYS":                 {Link: lacks(&os.LinkError{Op: "link", Err: syscall.ENOSYS})},
		"link says EOPNOTSUPP":             {Link: lacks(&os.LinkError{Op: "link", Err: syscall.EOPNOTSUPP})},
		"rename says EINVAL":               {Link: lacks(syscall.EPERM), Rename: lacks(syscall.EINVAL)},
		"rename says ENOSYS":               {Link: lacks(syscall.EPERM), Rename: lacks(syscall.ENOSYS), Sync: true},
		"rename is none of the system's":   {Link: lacks(syscall.EPERM), Rename: lacks(errors.ErrUnsupported)},
		"link whose answer is lost":        {Link: done(lost)},
		"link that fails when it was done": {Link: done(func(string) error { return syscall.EIO })},
		"rename whose answer is lost": {
			Link:   lacks(syscall.EPERM),
			Rename: func(old, name string) error { return errors.Join(renameExclusive(old, name), lost(name)) },
		},
	}
}

// renameExclusive is a rename that replaces nothing, for one process.
func renameExclusive(old, name string) error {
	if _, err := os.Lstat(name); err == nil {
		return fs.ErrExist
	}
	return os.Rename(old, name)
}

func TestPublishByWhateverTheFileSystemHas(t *testing.T) {
	for what, opt := range ways() {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.lock")
			data := []byte("a record\n")
			temp := newTemp(t, path, data, opt)
			if got := names(t, dir); len(got) != 1 || filepath.Join(dir, got[0]) != temp.Path {
				t.Fatalf("before: %q, the temp is %s", got, temp.Path)
			}
			if err := temp.Publish(path); err != nil {
				t.Fatal(err)
			}
			if got := names(t, dir); len(got) != 1 || got[0] != "a.lock" {
				t.Errorf("after: %q", got)
			}
			if temp.Path != "" || !temp.Named(path) {
				t.Errorf("its path is %q, the name is its own: %v", temp.Path, temp.Named(path))
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
				t.Errorf("in it: %q, %v", got, err)
			}
			if st, err := os.Stat(path); err != nil || st.Mode().Perm()&^0o600 != 0 {
				t.Errorf("mode %v, %v", st.Mode(), err)
			}
			// What is written by the descriptor is in the published file.
			if _, err := temp.File.WriteAt([]byte("A"), 0); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || got[0] != 'A' {
				t.Errorf("in it: %q, %v", got, err)
			}
			temp.Close()
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("closed: %q", got)
			}
		})
	}
}

func TestPublishTakesNoNameThatIsTaken(t *testing.T) {
	taken := map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":      func(path string) error { return os.Symlink("nowhere", path) },
	}
	for what, opt := range ways() {
		for by, take := range taken {
			t.Run(by+" by "+what, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "a.lock")
				temp := newTemp(t, path, []byte("ours"), opt)
				if err := take(path); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				err = temp.Publish(path)
				if !errors.Is(err, fs.ErrExist) {
					t.Errorf("got %v", err)
				}
				if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
					t.Errorf("it was touched: %v, %v", after, err)
				}
				if temp.Named(path) || !temp.Named(temp.Path) {
					t.Error("the temp is not where it was")
				}
				// When the name is free, it is still to be had.
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := temp.Publish(path); err != nil {
					t.Error(err)
				}
				if got := names(t, dir); len(got) != 1 || got[0] != "a.lock" {
					t.Errorf("after: %q", got)
				}
			})
		}
	}
}

func TestPublishTellsWhatTheSystemRefuses(t *testing.T) {
	for what, opt := range map[string]CreateOptions{
		"link":   {Link: lacks(syscall.EIO)},
		"rename": {Link: lacks(syscall.EPERM), Rename: lacks(syscall.EIO)},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.lock")
			temp := newTemp(t, path, []byte("ours"), opt)
			if err := temp.Publish(path); !errors.Is(err, syscall.EIO) {
				t.Errorf("got %v", err)
			}
			temp.Close()
			if got := names(t, dir); len(got) != 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestPublishOfATempThatIsGone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	temp := newTemp(t, path, []byte("ours"), CreateOptions{})
	if err := os.Remove(temp.Path); err != nil {
		t.Fatal(err)
	}
	if err := temp.Publish(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if temp.Named(temp.Path) || !temp.Dir() {
		t.Error("the temp is there, or its directory is not")
	}
	// Another file of its name is not the temp, and not published as such.
	if err := os.WriteFile(temp.Path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if temp.Named(temp.Path) {
		t.Error("another file is taken for the temp")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if temp.Dir() {
		t.Error("a directory that is gone is there")
	}
}

func TestNameHasOneWinnerByEveryWay(t *testing.T) {
	all := ways()
	delete(all, "rename whose answer is lost") // its rename excludes nobody
	for what, opt := range all {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.lock")
			for range 20 {
				var won atomic.Int32
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						data := bytes.Repeat([]byte{byte('a' + i)}, 400)
						temp, err := CreateTemp(path, data, opt)
						if err != nil {
							t.Error(err)
							return
						}
						defer temp.Close()
						switch err := temp.Publish(path); {
						case err == nil:
							won.Add(1)
							if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
								t.Errorf("the winner's file: %.10q, %v", got, err)
							}
						case !errors.Is(err, fs.ErrExist):
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if n := won.Load(); n != 1 {
					t.Fatalf("%d winners", n)
				}
				if got := names(t, dir); len(got) != 1 {
					t.Errorf("left behind: %q", got)
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// As an original does that takes what is not whole yet for malformed: whoever comes away with the name has it.
func TestNameThatIsTakenDuringTheWriteIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "a.lock"), filepath.Join(dir, "theirs")
	opt := CreateOptions{Link: lacks(syscall.EPERM), Rename: lacks(syscall.ENOSYS)}
	data := bytes.Repeat([]byte("x"), MaxSize)
	outcomes := make(map[bool]int)
	for range 200 {
		if err := os.WriteFile(theirs, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		temp := newTemp(t, path, data, opt)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := os.Lstat(path); err == nil {
					break
				}
			}
			if err := os.Rename(theirs, path); err != nil {
				t.Error(err)
			}
		})
		err := temp.Publish(path)
		wg.Wait()
		outcomes[err == nil]++
		switch {
		case err != nil && !errors.Is(err, fs.ErrExist):
			t.Fatal(err)
		case err != nil && (temp.Path == "" || !temp.Named(temp.Path)):
			t.Fatal("the temp is not there any more")
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "theirs" {
			t.Fatalf("their file: %.20q, %v", got, err)
		}
		temp.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("published before it was taken: %d of 200", outcomes[true])
}
