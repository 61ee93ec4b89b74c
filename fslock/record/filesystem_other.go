//go:build !linux && !darwin && !freebsd

package record

import "errors"

func fileSystem(string) (string, error) { return "", errors.ErrUnsupported }
