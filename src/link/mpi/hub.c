/* Frees a hub of the mpi link and its endpoints. */
#include "link/mpi/hub.h"

void gw_mpi_endpoint_free(struct gw_mpi_endpoint *endpoint)
{
    gw_message_queue_clear(&endpoint->inbox);
    gw_mpi_outgoing_free(endpoint->farewell);
    pthread_cond_destroy(&endpoint->arrived);
    gw_message_free(endpoint);
}

void gw_mpi_hub_free(struct gw_mpi_hub *hub)
{
    bool runs = gw_mpi_runs();
    if (hub->comm != MPI_COMM_NULL && runs && gw_mpi_is_over(hub))
        MPI_Comm_free(&hub->comm);
    if (!runs) { /* MPI has ended, so it reads and writes nothing any more */
        while (hub->posted) {
            struct gw_mpi_outgoing *next = hub->posted->next;
            gw_mpi_outgoing_free(hub->posted);
            hub->posted = next;
        }
        while (hub->outgoing) {
            struct gw_mpi_outgoing *next = hub->outgoing->next;
            gw_mpi_outgoing_free(hub->outgoing);
            hub->outgoing = next;
        }
        while (hub->incoming) {
            struct gw_mpi_incoming *next = hub->incoming->next;
            gw_message_free(hub->incoming->bytes);
            gw_message_free(hub->incoming);
            hub->incoming = next;
        }
    }
    for (uint32_t i = 0; hub->local && i < hub->n_local; i++)
        if (hub->local[i])
            gw_mpi_endpoint_free(hub->local[i]);
    gw_message_free(hub->local);
    gw_message_free(hub->process_of);
    gw_message_free(hub->slot_of);
    gw_message_free(hub->machine_of);
    gw_message_free(hub->rank_at);
    gw_message_free(hub->held_up);
    pthread_mutex_destroy(&hub->moving);
    pthread_mutex_destroy(&hub->sending);
    pthread_mutex_destroy(&hub->lock);
    gw_message_free(hub);
}
