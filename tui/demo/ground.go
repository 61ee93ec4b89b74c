package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	groundPattern = "holdfast-demo-*"
	markerName    = ".holdfast-demo"
)

// makeGround makes an empty directory that only we can enter, and marks it with a nonce as ours.
func makeGround(nonce string) (dir string, err error) {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "", err
	}
	dir, err = os.MkdirTemp(temp, groundPattern)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, markerName), []byte(nonce), 0o600); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// removeGround removes a directory that makeGround made with this nonce, and no other. One that is not there is no
// error.
//
// The marker goes last: after a removal that was broken off, the directory can still be known as ours.
func removeGround(dir, nonce string) error {
	if dir == "" {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = empty(root, nonce)
	_ = root.Close()
	if err != nil {
		return err
	}
	// Somebody else who works in the playground can put a file back while it is emptied.
	for range 20 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// empty removes everything but the marker, which must hold the nonce.
func empty(root *os.Root, nonce string) error {
	if found, err := root.ReadFile(markerName); err != nil || string(found) != nonce {
		return fmt.Errorf("%s is left alone: it does not carry our mark", root.Name())
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		if e.Name() != markerName {
			err = errors.Join(err, root.RemoveAll(e.Name()))
		}
	}
	return err
}
