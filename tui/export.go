package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/adrg/xdg"

	"holdfast/tui/text"
	"holdfast/watch"
)

// Export is one form in which ^s writes the picture.
type Export struct {
	Ext   string // of the file's name, without a dot
	Write func(w io.Writer, s *watch.Snapshot) error
}

// exported is what ^s came to.
type exported struct {
	paths []string // what was written, whole
	what  string   // of the picture
	err   error
}

// export has the picture that is drawn written, every entry of it, whatever the list leaves out.
func (m *model) export() []command {
	switch {
	case m.snap == nil:
		m.complain("Nothing to export: nothing was looked at yet.")
		return nil
	case len(m.exports) == 0:
		m.complain("Nothing is exported: this screen was given no form for it.")
		return nil
	}
	what := m.countWords()
	m.say("Exporting %s%s", what, m.paint.Ellipsis())
	snap, exports, dir, at := m.snap, m.exports, m.exportDir, m.clock
	return []command{{run: func(context.Context) any {
		paths, err := writeExports(dir, snap, exports, at)
		return exported{paths, what, err}
	}}}
}

// countWords are how much the picture holds, in the header's own count, and what that leaves to be told with its lock.
func (m *model) countWords() string {
	words := text.Count(m.total, "entry")
	if parts := len(m.all) - m.total; parts > 0 {
		words += fmt.Sprintf(" and %d of their tokens and temps", parts)
	}
	return words
}

func (m *model) exportDone(x exported) {
	var names []string
	for i, path := range x.paths {
		if i > 0 {
			path = filepath.Ext(path)
		}
		names = append(names, path)
	}
	written := strings.Join(names, " and ")
	switch {
	case x.err == nil:
		m.say("Exported %s: %s", x.what, written)
	case written == "":
		m.complain("Not exported: %v", causeFirst(x.err))
	default:
		m.complain("Exported %s only: %v", written, causeFirst(x.err))
	}
}

// maxExports is how many exports of one second have a name.
const maxExports = 100

// writeExports writes the snapshot in every form, under one name with a time, into new files that only their owner can
// read. dir "" is holdfast in the user's state directory: the working directory can be one that is watched. It returns
// what is written whole.
func writeExports(dir string, s *watch.Snapshot, exports []Export, at time.Time) (paths []string, err error) {
	if dir == "" {
		dir = filepath.Join(xdg.StateHome, "holdfast")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	stem := filepath.Join(dir, "holdfast-"+at.Format("20060102-150405"))
	for n := 1; n <= maxExports; n++ {
		name := stem
		if n > 1 {
			name = fmt.Sprintf("%s-%d", stem, n)
		}
		paths, err = writeForms(name, s, exports)
		if len(paths) > 0 || !errors.Is(err, fs.ErrExist) {
			break // what is there is never written over: another name is taken
		}
	}
	return paths, err
}

func writeForms(stem string, s *watch.Snapshot, exports []Export) (paths []string, err error) {
	for _, x := range exports {
		var b bytes.Buffer
		if err := x.Write(&b, s); err != nil {
			return paths, err
		}
		path := stem + "." + x.Ext
		if err := writeNew(path, b.Bytes()); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// writeNew makes a file of mode 0600 that was not there, not even as a link, whole or not at all.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
