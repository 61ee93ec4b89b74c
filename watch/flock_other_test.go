//go:build !unix

package watch

import (
	"errors"
	"os"
)

func waitForFlock(*os.File) error { return errors.ErrUnsupported }
