package record

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestReplaceLeavesTheNewFileAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.lease.json")
	for i, opt := range []ReplaceOptions{{}, {Sync: true}, {Sync: true, SyncDir: true}, {SyncDir: true}} {
		data := EncodeCounter(uint64(i))
		if err := Replace(path, data, opt); err != nil {
			t.Fatal(err)
		}
		f, err := Read(path)
		if err != nil || !bytes.Equal(f.Data, data) {
			t.Errorf("%+v: %q, %v", opt, f.Data, err)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("%+v: left %q", opt, got)
		}
		if f.Stat.Mode.Perm()&^0o600 != 0 {
			t.Errorf("mode %v", f.Stat.Mode)
		}
	}
}

func TestReplaceTakesALinksPlaceAndLeavesWhereItLed(t *testing.T) {
	dir := t.TempDir()
	target := write(t, filepath.Join(dir, "target"), []byte("mine"))
	path := filepath.Join(dir, "x.epoch")
	if err := os.Symlink(target, path); err != nil {
		skip(t, err.Error())
	}
	if err := Replace(path, []byte("1\n"), ReplaceOptions{}); err != nil {
		t.Fatal(err)
	}
	f, err := Read(path)
	if err != nil || string(f.Data) != "1\n" {
		t.Errorf("%q, %v", f.Data, err)
	}
	if f, err := Read(target); err != nil || string(f.Data) != "mine" {
		t.Errorf("the link's target: %q, %v", f.Data, err)
	}
}

func TestFailedReplaceLeavesNothingNew(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "full", "file"), nil)
	for path, want := range map[string]error{
		filepath.Join(dir, "full"):                    nil, // a directory cannot be replaced; the number differs by system
		filepath.Join(dir, "no", "x.lease.json"):      fs.ErrNotExist,
		filepath.Join(dir, strings.Repeat("x", 5000)): nil,
	} {
		err := Replace(path, []byte("x"), ReplaceOptions{Sync: true, SyncDir: true})
		var p *fs.PathError
		var l *os.LinkError
		if err == nil || want != nil && !errors.Is(err, want) || !errors.As(err, &p) && !errors.As(err, &l) ||
			!strings.HasPrefix(err.Error(), "replace "+path+": ") {
			t.Errorf("%.100s: %v, want %v", path, err, want)
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left %q", got)
	}
}

func TestReplacedFileIsAlwaysWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lease.json")
	old, young := bytes.Repeat([]byte("a"), 300), bytes.Repeat([]byte("b"), 500)
	write(t, path, old)
	var stop atomic.Bool
	var writers sync.WaitGroup
	for _, data := range [][]byte{old, young} {
		writers.Go(func() {
			for !stop.Load() {
				if err := Replace(path, data, ReplaceOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2000 {
		f, err := Read(path)
		if err != nil || !bytes.Equal(f.Data, old) && !bytes.Equal(f.Data, young) {
			t.Errorf("%q, %v", f.Data, err)
		}
	}
	stop.Store(true)
	writers.Wait()
	if got := names(t, filepath.Dir(path)); len(got) != 1 {
		t.Errorf("left %q", got)
	}
}

func TestCreateTakesNoNameThatIsTaken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.lock")
	if err := Create(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling.lock")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), dangling); err != nil {
		skip(t, err.Error())
	}
	folder := filepath.Join(dir, "folder.lock")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{path, dangling, folder} {
		err := Create(taken, []byte("second"))
		var l *os.LinkError
		if !errors.Is(err, fs.ErrExist) || !errors.As(err, &l) || !strings.HasPrefix(err.Error(), "create "+taken+": ") {
			t.Errorf("%v", err)
		}
	}
	f, err := Read(path)
	if err != nil || string(f.Data) != "first" || f.Stat.Mode.Perm()&^0o600 != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("left %q", got)
	}
	if err := Create(filepath.Join(dir, "no", "x.lock"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := Create(filepath.Join(path, "x.lock"), nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("%v", err)
	}
}

func TestOneCreatorOfManyWins(t *testing.T) {
	dir := t.TempDir()
	for round := range 20 {
		path := filepath.Join(dir, "x"+strconv.Itoa(round)+".lock")
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				switch err := Create(path, []byte("x")); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d won", won.Load())
		}
	}
	if got := names(t, dir); len(got) != 20 {
		t.Errorf("left %q", got)
	}
}

func TestTempIsRemovedWhenItCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	taken := write(t, filepath.Join(dir, "taken"), []byte("theirs"))
	// Only taken names: after some tries that is the answer, and the file is not touched.
	if _, err := writeTemp(dir+"/", func() string { return "taken" }, []byte("ours"), false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	tries := 0
	temp, err := writeTemp(dir+"/", func() string {
		if tries++; tries < 5 {
			return "taken"
		}
		return "free"
	}, []byte("ours"), true)
	if err != nil {
		t.Fatal(err)
	}
	if cerr := temp.Close(); temp.Name() != filepath.Join(dir, "free") || cerr != nil {
		t.Errorf("%s, %v", temp.Name(), cerr)
	}
	if f, err := Read(taken); err != nil || string(f.Data) != "theirs" {
		t.Errorf("%q, %v", f.Data, err)
	}
}

func TestDirectoryThatIsGoneCannotBeSynced(t *testing.T) {
	if !canSyncDir {
		skip(t, "no directory can be synced here")
	}
	dir := t.TempDir()
	if err := syncDir(dir); err != nil {
		t.Error(err)
	}
	if err := syncDir(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestTempNamesAreTheOriginals(t *testing.T) {
	if got := replaceName(); !regexp.MustCompile(`^\.registry-tmp-[A-Za-z0-9]{6}\.json$`).MatchString(got) {
		t.Error(got)
	}
	before := time.Now().UnixNano()
	name := TempName("test.lock")
	m := regexp.MustCompile(`^\.test\.lock\.tmp\.(\d+)\.(\d+)\.\d+$`).FindStringSubmatch(name)
	if m == nil || m[1] != strconv.Itoa(os.Getpid()) {
		t.Fatal(name)
	}
	if nanos, err := strconv.ParseInt(m[2], 10, 64); err != nil || nanos < before || nanos > time.Now().UnixNano() {
		t.Error(name)
	}
	seen := map[string]bool{}
	for range 1000 {
		seen[TempName("x")] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d names of 1000", len(seen))
	}
	lock, pid, ok := ParseTemp(name)
	if lock != "test.lock" || int(pid) != os.Getpid() || !ok {
		t.Errorf("%s %d %v", lock, pid, ok)
	}
	if lock, pid, ok := ParseTemp(".test.lock.tmp.400.1796046969596595633.0"); lock != "test.lock" || pid != 400 || !ok {
		t.Errorf("%s %d %v", lock, pid, ok)
	}
	if lock, pid, ok := ParseTemp(".a.tmp.1.2.3.tmp.4.5.6"); lock != "a.tmp.1.2.3" || pid != 4 || !ok {
		t.Errorf("%s %d %v", lock, pid, ok)
	}
	for _, no := range []string{
		"", ".", "test.lock", "test.lock.tmp.1.2.3", ".test.lock.tmp.1.2", ".test.lock.tmp.1.2.3.4",
		".test.lock.tmp.x.2.3", ".tmp.1.2.3",
		".test.lock.tmp.+1.2.3", ".test.lock.tmp.1.-2.3", ".test.lock.tmp.1..3", ".test.lock.tmp.4294967296.2.3",
		"..tmp.1.2.3.x",
		".registry-tmp-Qw3xYz.json", ".test.lock.reclaim",
	} {
		if lock, pid, ok := ParseTemp(no); ok || lock != "" || pid != 0 {
			t.Errorf("%q: %s %d %v", no, lock, pid, ok)
		}
	}
}

func TestLongNameStillHasATempAndCanBeLocked(t *testing.T) {
	for _, name := range []string{
		strings.Repeat("x", 245) + ".lock", strings.Repeat("x", 255), strings.Repeat("é", 127),
		strings.Repeat("\x80", 250),
	} {
		temp := TempName(name)
		lock, pid, ok := ParseTemp(temp)
		if len(temp) > 255 || !ok || int(pid) != os.Getpid() || !strings.HasPrefix(name, lock) {
			t.Errorf("%d bytes: %q %d %v", len(temp), lock, pid, ok)
		}
		if strings.HasPrefix(name, "é") && len(lock)%2 != 0 {
			t.Errorf("cut in the middle of a letter: %q", lock)
		}
		if name[0] == 0x80 {
			continue // not every file system has such names
		}
		dir := t.TempDir()
		if err := Create(filepath.Join(dir, name), []byte("x")); err != nil {
			t.Error(err)
		}
		if got := names(t, dir); len(got) != 1 || got[0] != name {
			t.Errorf("left %q", got)
		}
	}
}

func TestTokenNamesAreTheOriginals(t *testing.T) {
	if got := TokenName("test.lock"); got != ".test.lock.reclaim" {
		t.Error(got)
	}
	if lock, ok := ParseToken(".test.lock.reclaim"); lock != "test.lock" || !ok {
		t.Errorf("%s %v", lock, ok)
	}
	if lock, ok := ParseToken("..x.reclaim.reclaim"); lock != ".x.reclaim" || !ok {
		t.Errorf("%s %v", lock, ok)
	}
	for _, no := range []string{"", ".reclaim", "..reclaim"[1:], "test.lock.reclaim", ".test.lock.Reclaim", ".test.lock.reclaim~"} {
		if lock, ok := ParseToken(no); ok || lock != "" {
			t.Errorf("%q: %s %v", no, lock, ok)
		}
	}
}
