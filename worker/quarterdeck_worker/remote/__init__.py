"""Drive a remote server through the SDK's transports."""
