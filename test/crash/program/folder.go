package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// folder is a book whose files the program reaches.
type folder struct {
	dir    string
	record *os.File
	held   *os.File
}

func openFolder(dir string) (*folder, error) {
	record, err := os.OpenFile(filepath.Join(dir, "record"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	return &folder{dir: dir, record: record}, nil
}

func (f *folder) lock(name string) (mine bool, err error) {
	f.held, err = os.OpenFile(filepath.Join(f.dir, "locks", name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}

	err = syscall.Flock(int(f.held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}

	return err == nil, err
}

func (f *folder) note(line string) error {
	_, err := f.record.WriteString(line + "\n")
	return err
}

func (f *folder) touch(path string) error {
	return os.WriteFile(filepath.Join(f.dir, path), nil, 0o600)
}

func (f *folder) exists(path string) (bool, error) {
	_, err := os.Stat(filepath.Join(f.dir, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	return err == nil, err
}
