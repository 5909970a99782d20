/* Looks a name up as C programs do, and prints each address on a line: built with musl, whose resolver asks all name
 * servers at once from one socket. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int count, char **words)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found, *next;
	char text[INET6_ADDRSTRLEN];
	int error;

	if (count != 2)
		return 2;
	error = getaddrinfo(words[1], NULL, &hints, &found);
	if (error) {
		fprintf(stderr, "%s: %s\n", words[1], gai_strerror(error));
		return 1;
	}
	for (next = found; next; next = next->ai_next) {
		void *address = next->ai_family == AF_INET
			? (void *)&((struct sockaddr_in *)next->ai_addr)->sin_addr
			: (void *)&((struct sockaddr_in6 *)next->ai_addr)->sin6_addr;
		puts(inet_ntop(next->ai_family, address, text, sizeof text));
	}
	freeaddrinfo(found);
	return 0;
}
