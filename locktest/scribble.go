package locktest

import (
	"cmp"
	"fmt"
	"reflect"
)

// scribble changes in place all data that can be reached from p through exported fields.
func scribble(p any) { scribbleOn(reflect.ValueOf(p), map[uintptr]bool{}) }

func scribbleOn(v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if v.IsNil() || seen[v.Pointer()] { // a second change may undo the first one
			return
		}
		seen[v.Pointer()] = true
	default:
	}
	switch v.Kind() {
	case reflect.Pointer:
		scribbleOn(v.Elem(), seen)
	case reflect.Interface:
		if !v.IsNil() && v.CanSet() {
			v.Set(scribbled(v.Elem(), seen))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if key.CanInterface() {
				v.SetMapIndex(key, scribbled(v.MapIndex(key), seen))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			scribbleOn(v.Index(i), seen)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			scribbleOn(field, seen)
		}
	default:
		if v.CanSet() {
			scribbleOnPlain(v)
		}
	}
}

// scribbled returns a changed copy of a value that cannot be changed in place. Data that it points
// to is changed in place.
func scribbled(v reflect.Value, seen map[uintptr]bool) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	scribbleOn(c, seen)
	return c
}

func scribbleOnPlain(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(^v.Int())
	case v.CanUint():
		v.SetUint(^v.Uint())
	case v.CanFloat():
		v.SetFloat(cmp.Or(-v.Float(), 1))
	case v.CanComplex():
		v.SetComplex(v.Complex() + 1)
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "!")
	}
}

// empty reports whether v, or the value that it points to, is zero.
func empty(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return !v.IsValid() || v.IsZero()
}

// brief formats a value for an error, in about 200 bytes.
func brief(v any) string {
	const most = 200
	s := fmt.Sprintf("%T %+v", v, v)
	if b, ok := v.([]byte); ok {
		s = fmt.Sprintf("%q", b)
	}
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
	}
	return s
}
