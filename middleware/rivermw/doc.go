// Package rivermw has middlewares for River workers.
package rivermw
