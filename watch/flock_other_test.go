//go:build !unix

package watch

import (
	"errors"
	"os"
)

func waitForFlock(*os.File) error { return errors.ErrUnsupported }

func halt(int, bool) {}

func renewForever(string) {}
