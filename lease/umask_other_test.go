//go:build !unix

package lease

import "errors"

func setUmask(int) error { return errors.ErrUnsupported }
