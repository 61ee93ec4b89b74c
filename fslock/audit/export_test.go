package audit

import "os"

// TornLog is a log whose writer comes to its end in the middle of a line.
func TornLog(path string, end func()) *Log {
	return &Log{Path: path, write: func(f *os.File, line []byte) (int, error) {
		n, err := f.Write(line[:len(line)/2])
		if err == nil {
			end()
		}
		return n, err
	}}
}

// FailingLog is a log whose disk takes half a line.
func FailingLog(path string, err error) *Log {
	return &Log{Path: path, write: func(f *os.File, line []byte) (int, error) {
		n, _ := f.Write(line[:len(line)/2])
		return n, err
	}}
}

// Guard is the file that writers lock.
func Guard(log string) (leave func(), err error) { return enter(log) }
